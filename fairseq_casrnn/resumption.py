"""Further state in checkpoints, for a training that goes on, which fairseq's own leaves out."""

import functools
from collections.abc import Callable


def keep_in_checkpoints(key: str, collect: Callable, restore: Callable) -> None:
    """Have fairseq's trainer keep something under ``extra_state[key]``; again does no harm.

    Args:
        key: a name of its own.
        collect: ``collect(trainer)`` gives what is to be kept, None for nothing.
        restore: ``restore(trainer, kept)`` takes it back on resumption, but not where a training
            starts from another model's weights (``--finetune-from-model``, ``--reset-…``).
    """
    from fairseq.trainer import Trainer

    save, load = Trainer.save_checkpoint, Trainer.load_checkpoint
    known = getattr(save, "_keeps", frozenset())
    if key in known:
        return

    @functools.wraps(save)
    def save_checkpoint(self, filename, extra_state):
        kept = collect(self)
        return save(self, filename, extra_state if kept is None else {**extra_state, key: kept})

    @functools.wraps(load)
    def load_checkpoint(self, filename, *args, **kwargs):
        extra_state = load(self, filename, *args, **kwargs)
        reset = any(args[:2]) or any(
            kwargs.get(f"reset_{part}") for part in ("optimizer", "lr_scheduler", "meters")
        )
        if extra_state and key in extra_state and not reset:
            restore(self, extra_state[key])
        return extra_state

    save_checkpoint._keeps = known | {key}
    Trainer.save_checkpoint, Trainer.load_checkpoint = save_checkpoint, load_checkpoint


def keep_task_state() -> None:
    """Give tasks with ``resumes = True`` their state back.

    fairseq 0.12.3 writes a task's state into checkpoints and does not read it when training.
    """

    def collect(trainer):
        return trainer.task.state_dict() if getattr(trainer.task, "resumes", False) else None

    def restore(trainer, state):
        if getattr(trainer.task, "resumes", False):
            trainer.task.load_state_dict(state)

    keep_in_checkpoints("task", collect, restore)
