"""Further state in checkpoints, for a training that goes on, which fairseq's own leaves out."""

from collections.abc import Callable

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.wrapping import wrap


def keep_in_checkpoints(
    key: str, collect: Callable, restore: Callable, start: Callable | None = None
) -> None:
    """Have fairseq's trainer keep something under ``extra_state[key]``; again does no harm.

    Args:
        key: a name of its own.
        collect: ``collect(trainer)`` gives what is to be kept, None for nothing.
        restore: ``restore(trainer, kept)`` takes it back on resumption.
        start: the same, where a training starts from another model's weights instead
            (``--finetune-from-model``, ``--reset-…``).
    """
    from fairseq.trainer import Trainer

    def save_checkpoint(save, self, filename, extra_state):
        kept = collect(self)
        return save(self, filename, extra_state if kept is None else {**extra_state, key: kept})

    def taking(take):
        def of_state(trainer, extra_state):
            if key in extra_state:
                take(trainer, extra_state[key])

        return None if take is None else of_state

    wrap(Trainer, "save_checkpoint", save_checkpoint, key)
    after_loading(key, taking(restore), taking(start))


def after_loading(key: str, restore: Callable | None, start: Callable | None = None) -> None:
    """Have fairseq's trainer call something after it has loaded a checkpoint.

    Args:
        key: a name of its own.
        restore: ``restore(trainer, extra_state)``, on resumption.
        start: the same, where a training starts from another model's weights instead.
    """
    from fairseq.trainer import Trainer

    def load_checkpoint(load, self, filename, *args, **kwargs):
        extra_state = load(self, filename, *args, **kwargs)
        reset = any(args[:2]) or any(
            kwargs.get(f"reset_{part}") for part in ("optimizer", "lr_scheduler", "meters")
        )
        act = start if reset else restore
        if act is not None and extra_state:
            act(self, extra_state)
        return extra_state

    wrap(Trainer, "load_checkpoint", load_checkpoint, key)


def keep_task_state() -> None:
    """Give tasks with ``resumes = True`` their state back.

    fairseq 0.12.3 writes a task's state into checkpoints and does not read it when training. Of
    other tasks, and where only the weights are taken, the words are compared.
    """

    def collect(trainer):
        return trainer.task.state_dict() if getattr(trainer.task, "resumes", False) else None

    def restore(trainer, state):
        if getattr(trainer.task, "resumes", False):
            trainer.task.load_state_dict(state)
        else:
            trainer.task.check_words(state)

    def start(trainer, state):
        trainer.task.check_words(state)

    keep_in_checkpoints("task", collect, restore, start)


#: Options of a model with which the same weights compute something else.
MEANINGS = (
    "connection",
    "encoder_attention_heads",
    "lam",
    "mlp_activation",
    "no_boundaries",
    "num_steps",
    "pooling",
)


def keep_meanings() -> None:
    """Refuse to go on with weights that mean something else than they did; fairseq loads them."""

    def collect(trainer):
        model = trainer.cfg.model
        return {name: getattr(model, name) for name in MEANINGS if hasattr(model, name)} or None

    def restore(trainer, began):
        for name, now in (collect(trainer) or {}).items():
            if began.get(name, now) != now:
                raise UserError(
                    f"the training to be resumed has {spelled(name, began[name])}, not "
                    f"{spelled(name, now)}; give it the options it began with, or take only its "
                    "weights, with --finetune-from-model and another --save-dir"
                )

    keep_in_checkpoints("meanings", collect, restore)


def spelled(name: str, value: object) -> str:
    """An option as it is written on the command line."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"no {option}"
    return f"{option} {value}"
