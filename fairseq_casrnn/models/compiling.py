"""Compiles the GPU kernels of a training in the background while fairseq loads the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..layers import RecurrentStack
from ..recurrence import choose, triton_ahead
from ..recurrence.triton_plan import persistent_kernels_enabled
from .decoder import RecurrentDecoder


def compile_ahead(result, trainer, *args, **kwargs):
    """After ``Trainer.__init__``: start to compile the kernels of the first updates."""
    model = trainer._model  # trainer.model would wrap it for several GPUs too early
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.is_cuda and persistent_kernels_enabled():
        jobs = list(kernel_jobs(model))
        if jobs:
            triton_ahead.start(jobs, torch.device("cuda", torch.cuda.current_device()))
    return result


def kernel_jobs(model: nn.Module) -> Iterator[tuple]:
    """The kernels that train the recurrent parts of ``model``."""
    decoder_stacks = set()  # their kernels run the whole decoder loop
    for module in model.modules():
        if isinstance(module, RecurrentDecoder) and module.input_feed:
            rnn: Any = module.rnn
            width = module.embed_tokens.embedding_dim
            decoder_stacks.add(rnn)
            if uses_triton(rnn):
                has_dropout = (
                    rnn.dropout > 0 and rnn.num_layers > 1,
                    module.dropout_out_module.p > 0,
                )
                temperature = rnn.temperature if rnn.cells[0].num_cells else None
                weight_out = module.attention.weight_out.detach()
                layers = module.layers()
                yield from triton_ahead.decoder_jobs(
                    layers, width, weight_out, has_dropout, temperature
                )
    for module in model.modules():
        if (
            isinstance(module, RecurrentStack)
            and module not in decoder_stacks
            and uses_triton(module)
        ):
            for k, cell in enumerate(module.cells):
                yield from triton_ahead.layer_jobs(cell, *module.layer_parameters(k))


def uses_triton(stack: RecurrentStack) -> bool:
    """Whether ``stack`` runs Triton kernels."""
    has_kernels = all(cell.kernel is not None for cell in stack.cells)
    return has_kernels and choose(stack.engine, "cuda").name == "triton"
