"""A task's state on resumption: fairseq 0.12.3 writes it into checkpoints and does not read it."""

import functools


def load_on_resumption() -> None:
    """Give tasks with ``resumes = True`` their state back when a training goes on.

    Not when it starts from another model's weights (``--finetune-from-model``, ``--reset-…``).
    """
    from fairseq.trainer import Trainer

    save, load = Trainer.save_checkpoint, Trainer.load_checkpoint
    if getattr(save, "_keeps_task_state", False):
        return

    @functools.wraps(save)
    def save_checkpoint(self, filename, extra_state):
        if getattr(self.task, "resumes", False):
            extra_state = {**extra_state, "task": self.task.state_dict()}
        return save(self, filename, extra_state)

    @functools.wraps(load)
    def load_checkpoint(self, filename, *args, **kwargs):
        extra_state = load(self, filename, *args, **kwargs)
        reset = any(args[:2]) or any(
            kwargs.get(f"reset_{part}") for part in ("optimizer", "lr_scheduler", "meters")
        )
        state = None if reset else (extra_state or {}).get("task")
        if state is not None and getattr(self.task, "resumes", False):
            self.task.load_state_dict(state)
        return extra_state

    save_checkpoint._keeps_task_state = True
    Trainer.save_checkpoint, Trainer.load_checkpoint = save_checkpoint, load_checkpoint
