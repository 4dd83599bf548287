"""Further state in checkpoints, for a training that goes on, which fairseq's own leaves out.

It is added to ``extra_state`` before ``Trainer.save_checkpoint`` and taken back after
``Trainer.load_checkpoint``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable


def after_loading(take: Callable) -> Callable:
    """Make ``take(trainer, extra_state, resumes)`` a piece for after ``Trainer.load_checkpoint``.

    ``resumes`` is False where a training starts from another model's weights instead
    (``--finetune-from-model``, ``--reset-…``). Without a checkpoint ``take`` is not called.
    """

    @functools.wraps(take)
    def piece(
        extra_state,
        trainer,
        filename,
        reset_optimizer=False,
        reset_lr_scheduler=False,
        optimizer_overrides=None,
        reset_meters=False,
    ):
        if extra_state:
            resumes = not (reset_optimizer or reset_lr_scheduler or reset_meters)
            take(trainer, extra_state, resumes)
        return extra_state

    return piece
