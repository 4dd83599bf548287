"""Training state that fairseq's checkpoints lack.

Hooks add it to ``extra_state`` before ``Trainer.save_checkpoint`` and restore it after
``Trainer.load_checkpoint``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable


def after_loading(restore: Callable) -> Callable:
    """Make ``restore(trainer, extra_state, resumes)`` a hook after ``Trainer.load_checkpoint``.

    ``resumes`` is False if a training only takes the weights (``--finetune-from-model``,
    ``--reset-…``). ``restore`` is not called if there is no checkpoint.
    """

    @functools.wraps(restore)
    def hook(
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
            restore(trainer, extra_state, resumes)
        return extra_state

    return hook
