"""The decoder loop of :mod:`.attention` on the selected engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .attention import DecoderInputs, DecoderLayer, DecoderSteps
from .choice import by_name, choose
from .inputs import autocast
from .memory import readable


def run(engine: str | None, d: DecoderInputs) -> tuple[Tensor, Tensor]:
    """:func:`.attention.run_reference`, on the engine of that name (None: the default)."""
    device = d.h0.device.type
    if autocast(device):  # the recurrence has the parameters' precision
        with torch.autocast(device, enabled=False):
            return run(engine, in_dtype(d, d.layers[0].weight_hh.dtype))
    return choose(engine, device, lambda one: one.supports_decode(d)).decode(d)


def steps(
    engine: str | None, d: DecoderInputs, source: Tensor | None, input_feed: bool
) -> DecoderSteps | None:
    """The loop step by step, for beam search; arguments as of :class:`.CppDecoderSteps`.

    None if gradients are enabled, or the engine has no compiled loop for ``d``.
    """
    device = d.h0.device.type
    if torch.is_grad_enabled() or autocast(device) or not all_readable(d):
        return None
    return by_name(engine, device).decode_steps(d, source, input_feed)


def all_readable(d: DecoderInputs) -> bool:
    """:func:`.memory.readable` of all tensors."""
    layers = [t for layer in d.layers for t in (*vars(layer).values(), *layer.params)]
    return readable(*(t for t in (*vars(d).values(), *layers) if torch.is_tensor(t)))


def all_in_dtype(d: DecoderInputs, dtype: torch.dtype) -> DecoderInputs:
    """``d`` and its layers with all floating-point tensors in ``dtype``."""
    layers = [layer_in_dtype(layer, dtype) for layer in d.layers]
    return in_dtype(replace(d, layers=layers), dtype)


def in_dtype(d: DecoderInputs, dtype: torch.dtype) -> DecoderInputs:
    """``d`` with its own floating-point tensors in ``dtype``; the layers stay as they are."""
    tensors: dict[str, Any] = {
        name: value.to(dtype)
        for name, value in vars(d).items()
        if torch.is_tensor(value) and value.is_floating_point() and name != "temperature"
    }
    return replace(d, **tensors)


def layer_in_dtype(layer: DecoderLayer, dtype: torch.dtype) -> DecoderLayer:
    """``layer`` with all its tensors in ``dtype``."""
    params = tuple(p.to(dtype) for p in layer.params)
    tensors: dict[str, Any] = {
        name: value.to(dtype) for name, value in vars(layer).items() if torch.is_tensor(value)
    }
    return replace(layer, params=params, **tensors)
