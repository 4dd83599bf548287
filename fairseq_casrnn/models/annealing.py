"""Epoch-wise annealing: tells a model's layers the epoch, and logs their temperature."""

from __future__ import annotations

import functools
import logging

from fairseq.logging import metrics

logger = logging.getLogger(__name__)

# At a last temperature of 0.016 hard routing still cost a tenth of WikiText-2's perplexity, for the
# scores shrink along with the temperature; at 2e-4 nothing.
MIXED, HARD = 1e-3, 1e-4


def follow_epochs(task, model, cfg) -> None:
    """Make ``task.begin_epoch`` also set the temperature of ``model``'s mixture layers and log it.

    fairseq calls ``begin_epoch`` at the start of every epoch and after a resume, so the temperature
    is always that of the running epoch. The first call warns of an annealing that ends too early.
    Models without a temperature leave the task as it is.
    """
    if not temperatures(model) or getattr(task, "_follows_epochs", False):
        return
    begin_epoch = task.begin_epoch
    warned = False

    @functools.wraps(begin_epoch)
    def annealed(epoch, model):
        nonlocal warned
        begin_epoch(epoch, model)
        if not warned:
            warn_of_mixing(model, getattr(cfg, "max_epoch", 0))
            warned = True
        model.set_epoch(epoch)
        metrics.log_scalar("temperature", float(temperatures(model)[0]), round=4)

    task.begin_epoch = annealed
    task._follows_epochs = True


def temperatures(model) -> list:
    """The temperature buffers of ``model``."""
    return [
        buffer for name, buffer in model.named_buffers() if name.split(".")[-1] == "temperature"
    ]


def warn_of_mixing(model, max_epoch) -> None:
    """Warn where cells are still mixed in the last of ``max_epoch`` epochs (0: no limit)."""
    if not isinstance(max_epoch, int) or max_epoch < 1:  # a reference, in a config made by hand
        return
    layers = [module for module in model.modules() if hasattr(module, "temperature_at")]
    mixing = [layer for layer in layers if layer.options.num_cells > 1]
    if not mixing:
        return
    start, last = mixing[0].options.temperature, mixing[0].temperature_at(max_epoch)
    if last <= MIXED:
        return
    if max_epoch == 1:
        logger.warning(
            "in the only epoch the temperature is %.2g, at which cells are still mixed, but "
            "evaluation routes hard; train for more epochs with a --temperature-decay, or give "
            "--temperature %.0e",
            *(last, HARD),
        )
        return
    decay = (HARD / start) ** (1 / (max_epoch - 1))
    logger.warning(
        "in the last of %d epochs the temperature is %.2g, at which cells are still mixed, but "
        "evaluation routes hard; with --temperature-decay %.2g --temperature-floor %.0e training "
        "ends hard, too",
        *(max_epoch, last, decay, HARD),
    )
