"""Chooses how the decoder loop of :mod:`.attention` is run."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from . import attention_cpp, attention_triton, autocast, engine_name, triton_decoder_steps
from .attention import Decode, Layer, run_reference
from .attention_cpp import COMPILED
from .attention_eager import EAGER
from .attention_loop import run as run_fused
from .inputs import accumulation_dtype
from .memory import readable
from .triton_failures import attempt, first_line
from .triton_loop import say
from .triton_plan import RefusedError


def run(engine: str | None, d: Decode) -> tuple[Tensor, Tensor]:
    """:func:`.attention.run_reference`, by the engine of that name (None: the default)."""
    device, dtype = d.h0.device.type, d.layers[0].weight_hh.dtype
    name = engine_name(engine, device)
    if autocast(device):  # sums over time in the parameters' precision
        with torch.autocast(device, enabled=False):
            return run(name, in_dtype(d, dtype))
    fused = all(layer.cell.is_fused() for layer in d.layers)
    if name == "reference" or not fused or d.h0.size(1) == 0 or not _readable(d):
        return run_reference(d)
    if name == "triton":
        reason = attention_triton.why_unsupported(d)
        try:
            if reason is None:
                return attempt(lambda: attention_triton.run(d), lambda: run("eager", d))
        except RefusedError as error:
            reason = first_line(error)
        say("eager", reason)
    wide = accumulation_dtype(dtype)
    if wide != dtype:  # in half precision, the loop in single
        layers = [layer_in_dtype(layer, wide) for layer in d.layers]
        out, alpha = run(name, in_dtype(replace(d, layers=layers), wide))
        return out.to(dtype), alpha.to(dtype)
    compiled = name == "cpp" and attention_cpp.supports(d)
    return run_fused(d, COMPILED if compiled else EAGER)


def steps(engine: str | None, d: Decode, source: Tensor | None, input_feed: bool):
    """The loop step by step for beam search; see :class:`.attention_cpp.Steps`.

    None where there is no compiled loop for it, or where gradients are wanted.
    """
    device = d.h0.device.type
    if torch.is_grad_enabled() or autocast(device) or not _readable(d):
        return None
    name = engine_name(engine, device)
    if name == "cpp" and d.temperature is None and attention_cpp.supports(d):
        return attention_cpp.Steps(d, source, input_feed)
    if name == "triton" and attention_triton.why_unsupported(d) is None:
        return triton_decoder_steps.Steps(d, source, input_feed)
    return None


def _readable(d: Decode) -> bool:
    layers = [t for layer in d.layers for t in (*vars(layer).values(), *layer.params)]
    return readable(*(t for t in (*vars(d).values(), *layers) if torch.is_tensor(t)))


def in_dtype(d: Decode, dtype: torch.dtype) -> Decode:
    """``d`` with its floating-point tensors, other than the layers', in ``dtype``."""
    return replace(
        d,
        **{
            name: value.to(dtype)
            for name, value in vars(d).items()
            if torch.is_tensor(value) and value.is_floating_point() and name != "temperature"
        },
    )


def layer_in_dtype(layer: Layer, dtype: torch.dtype) -> Layer:
    """``layer`` with all its tensors in ``dtype``."""
    params = tuple(p.to(dtype) for p in layer.params)
    tensors = {k: t.to(dtype) for k, t in vars(layer).items() if torch.is_tensor(t)}
    return replace(layer, params=params, **tensors)
