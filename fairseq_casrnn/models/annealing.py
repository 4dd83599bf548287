"""Epoch-wise annealing: tells a model's layers the epoch, and logs their temperature."""

from __future__ import annotations

import functools

from fairseq.logging import metrics


def follow_epochs(task, model) -> None:
    """Make ``task.begin_epoch`` also set the temperature of ``model``'s mixture layers and log it.

    fairseq calls ``begin_epoch`` at the start of every epoch and after a resume, so the temperature
    is always that of the running epoch. Models without a temperature leave the task as it is.
    """
    if not temperatures(model) or getattr(task, "_follows_epochs", False):
        return
    begin_epoch = task.begin_epoch

    @functools.wraps(begin_epoch)
    def annealed(epoch, model):
        begin_epoch(epoch, model)
        model.set_epoch(epoch)
        metrics.log_scalar("temperature", float(temperatures(model)[0]), round=4)

    task.begin_epoch = annealed
    task._follows_epochs = True


def temperatures(model) -> list:
    """The temperature buffers of ``model``."""
    return [
        buffer for name, buffer in model.named_buffers() if name.split(".")[-1] == "temperature"
    ]
