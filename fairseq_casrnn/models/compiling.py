"""Compiles the GPU kernels of a training in the background while fairseq loads the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..layers import RecurrentStack
from ..recurrence import choose
from ..recurrence.triton import ahead as triton_ahead
from ..recurrence.triton.plan import interpreting, persistent_kernels_enabled
from .decoder import RecurrentDecoder
from .head import VocabularyHead

if TYPE_CHECKING:
    from fairseq.trainer import Trainer

TYPICAL_SENTENCE_WORDS = 16


def compile_ahead(result: None, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
    """After ``Trainer.__init__``: start to compile the kernels of the first updates."""
    model = trainer._model  # trainer.model would wrap it for several GPUs too early
    parameter = next(model.parameters(), None)
    compiles = parameter is not None and parameter.is_cuda and not interpreting()
    if compiles and persistent_kernels_enabled():
        jobs = [*kernel_jobs(model), *loss_jobs(model, trainer._criterion)]
        if jobs:
            device = torch.device("cuda", torch.cuda.current_device())
            triton_ahead.start(jobs, device, expected_rows(trainer.cfg.dataset))
    return result


def expected_rows(dataset: Any) -> int:
    """How many sentences a batch may have, by fairseq's options for it."""
    return dataset.batch_size or (dataset.max_tokens or 0) // TYPICAL_SENTENCE_WORDS


def kernel_jobs(model: nn.Module) -> Iterator[triton_ahead.Job]:
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


def loss_jobs(model: nn.Module, criterion: nn.Module) -> Iterator[triton_ahead.Job]:
    """The kernels of the loss, if ``criterion`` has it computed by the model's output layer."""
    needs_only_loss = getattr(criterion, "needs_only_loss", None)  # of the fused criterions
    if needs_only_loss is None or not needs_only_loss():
        return
    for module in model.modules():
        if isinstance(module, VocabularyHead) and module.can_fuse_loss and uses_triton(module.rnn):
            assert module.linear_vocabulary is not None  # or the loss could not be fused
            yield from triton_ahead.loss_jobs(module.linear_vocabulary[0])


def uses_triton(stack: RecurrentStack) -> bool:
    """Whether ``stack`` runs Triton kernels."""
    has_kernels = all(cell.kernel is not None for cell in stack.cells)
    return has_kernels and choose(stack.engine, "cuda").name == "triton"
