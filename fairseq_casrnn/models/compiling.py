"""The kernels of a model's training on a GPU, compiled while fairseq still gets ready."""

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
    """After ``Trainer.__init__``: begin to compile what the first updates will need."""
    model = trainer._model  # the property would wrap it for several GPUs, too early
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.is_cuda and persistent_kernels_enabled():
        jobs = list(jobs_of(model))
        if jobs:
            triton_ahead.start(jobs, torch.device("cuda", torch.cuda.current_device()))
    return result


def jobs_of(model: nn.Module) -> Iterator[tuple]:
    """The kernels that train the recurrent parts of ``model``."""
    in_loops = set()
    for module in model.modules():
        if isinstance(module, RecurrentDecoder) and module.input_feed:
            rnn: Any = module.rnn
            width = module.embed_tokens.embedding_dim
            in_loops.add(rnn)
            if on_triton(rnn):
                dropped = rnn.dropout > 0 and rnn.num_layers > 1, module.dropout_out_module.p > 0
                temperature = rnn.temperature if rnn.cells[0].num_cells else None
                weight_out = module.attention.weight_out.detach()
                layers = module.layers()
                yield from triton_ahead.decoder_jobs(
                    layers, width, weight_out, dropped, temperature
                )
    for module in model.modules():
        if isinstance(module, RecurrentStack) and module not in in_loops and on_triton(module):
            for k, cell in enumerate(module.cells):
                yield from triton_ahead.layer_jobs(cell, *module.layer_parameters(k))


def on_triton(stack: RecurrentStack) -> bool:
    """Whether the kernels of ``stack`` are Triton's."""
    known = all(cell.kernel is not None for cell in stack.cells)
    return known and choose(stack.engine, "cuda").name == "triton"
