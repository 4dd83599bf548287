"""A training goes on with the state of its task, and only with options that mean the same."""

from __future__ import annotations

from fairseq_casrnn.errors import UserError

from .extra_state import after_loading
from .vocabularies import check_words, keeps_state


def keep_task_state(trainer, filename, extra_state: dict) -> None:
    """Keep the state of tasks that read it again."""
    if keeps_state(trainer.task):
        extra_state["task"] = trainer.task.state_dict()


@after_loading
def restore_task_state(trainer, extra_state: dict, resumes: bool) -> None:
    """Give such tasks their state back.

    fairseq 0.12.3 writes a task's state into checkpoints and does not read it when training. Of
    other tasks, and where only the weights are taken, the words are compared.
    """
    state = extra_state.get("task")
    if state is None:
        return
    if resumes and keeps_state(trainer.task):
        trainer.task.load_state_dict(state)
    else:
        check_words(trainer.task, state)


@after_loading
def restore_annealing(trainer, extra_state: dict, resumes: bool) -> None:
    """Give a training of second-order LSTMs its annealing back."""
    from fairseq_casrnn.models.annealing import restore_annealing

    restore_annealing(trainer, extra_state, resumes)


def functional_options(model) -> dict[str, object]:
    """Options with which the same weights compute something else, and their defaults.

    Those whose field in the dataclass of the options has
    :data:`fairseq_casrnn.cells.base.FUNCTIONAL` in its metadata.

    Args:
        model: the configuration of a model, with its ``_name``.
    """
    from fairseq.models import MODEL_DATACLASS_REGISTRY

    from fairseq_casrnn.models.hub import options_of

    fields = options_of(MODEL_DATACLASS_REGISTRY, model)
    return {name: own.default for name, own in fields.items() if own.metadata.get("functional")}


def keep_functional_options(trainer, filename, extra_state: dict) -> None:
    """Keep them in the checkpoint."""
    model = trainer.cfg.model
    if names := functional_options(model):
        extra_state["meanings"] = {name: getattr(model, name) for name in names}


@after_loading
def check_functional_options(trainer, extra_state: dict, resumes: bool) -> None:
    """Refuse to resume with weights that would compute something else; fairseq loads them.

    An option that is newer than the checkpoint had its default.

    Raises:
        UserError: an option has changed.
    """
    began, model = extra_state.get("meanings"), trainer.cfg.model
    if began is None or not resumes:
        return
    for name, default in functional_options(model).items():
        before, now = began.get(name, default), getattr(model, name)
        if before != now:
            raise UserError(
                f"the training to be resumed has {spelled(name, before)}, not "
                f"{spelled(name, now)}; give it the options it began with, or take only its "
                "weights, with --finetune-from-model and another --save-dir"
            )


def spelled(name: str, value: object) -> str:
    """An option as it is written on the command line."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"no {option}"
    return f"{option} {value}"
