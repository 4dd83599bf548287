"""Run the decoder loop of :mod:`.decoder` on the selected engine."""

from __future__ import annotations

import torch
from torch import Tensor

from .choice import by_name, choose
from .decoder import DecoderInputs, DecoderSteps
from .inputs import autocast
from .memory import readable


def run(engine: str | None, d: DecoderInputs) -> tuple[Tensor, Tensor]:
    """:func:`.decoder.run_reference`, on the engine of that name (None: the default)."""
    device = d.h0.device.type
    if autocast(device):  # the recurrence keeps the parameters' precision
        with torch.autocast(device, enabled=False):
            return run(engine, d.to(d.layers[0].weight_hh.dtype))
    return choose(engine, device, lambda one: one.supports_decode(d)).decode(d)


def steps(
    engine: str | None, d: DecoderInputs, source: Tensor | None, input_feed: bool
) -> DecoderSteps | None:
    """The loop step by step, for beam search; arguments as of :class:`.CppDecoderSteps`.

    None if gradients are enabled, or the engine has no compiled loop for ``d``.
    """
    device = d.h0.device.type
    if torch.is_grad_enabled() or autocast(device) or not readable(*d.tensors()):
        return None
    return by_name(engine, device).decode_steps(d, source, input_feed)
