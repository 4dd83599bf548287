"""Resuming: restore the task's state and refuse options that change the trained function."""

from __future__ import annotations

from fairseq_casrnn.errors import UserError, as_option
from fairseq_casrnn.patches.extra_state import after_loading
from fairseq_casrnn.patches.vocabularies import check_words, digests


def resumes_state(task) -> bool:
    """Whether a resumed training restores the state of ``task``, which includes its digests."""
    from fairseq.tasks.language_modeling import LanguageModelingTask
    from fairseq.tasks.translation import TranslationTask

    return isinstance(task, LanguageModelingTask | TranslationTask) or getattr(
        task, "resumes", False
    )


def save_task_state(trainer, filename, extra_state: dict) -> None:
    """Before ``save_checkpoint``: save the task's state, or only the digests of dictionaries."""
    if resumes_state(trainer.task):
        extra_state["task"] = trainer.task.state_dict()
    elif (words := digests(trainer.task)) is not None:
        extra_state["words"] = words


@after_loading
def restore_task_state(trainer, extra_state: dict, resumes: bool) -> None:
    """After ``load_checkpoint``: restore the task's state.

    fairseq 0.12.3 writes the state of a task into checkpoints but does not load it in training. For
    other tasks, and if only the weights are taken, only the dictionaries are compared.
    """
    task, state = trainer.task, extra_state.get("task")
    if resumes and state is not None and resumes_state(task):
        task.load_state_dict(state)
    else:
        check_words(task, state or {"words": extra_state.get("words")})


@after_loading
def restore_annealing(trainer, extra_state: dict, resumes: bool) -> None:
    """After ``load_checkpoint``: restore the annealing of second-order LSTMs."""
    # fairseq imports models after the patches.
    from fairseq_casrnn.models.annealing import restore_annealing

    restore_annealing(trainer, extra_state, resumes)


def functional_options(model) -> dict[str, object]:
    """Names and defaults of the options that change what the same weights compute.

    These are the dataclass fields with :data:`fairseq_casrnn.cells.base.FUNCTIONAL` in their
    metadata.

    Args:
        model: the configuration of a model, with its ``_name``.
    """
    from fairseq.models import MODEL_DATACLASS_REGISTRY

    from fairseq_casrnn.models.hub import options_of

    fields = options_of(MODEL_DATACLASS_REGISTRY, model)
    return {name: own.default for name, own in fields.items() if own.metadata.get("functional")}


def save_functional_options(trainer, filename, extra_state: dict) -> None:
    """Before ``save_checkpoint``: save the functional options of the model."""
    model = trainer.cfg.model
    if names := functional_options(model):
        extra_state["meanings"] = {name: getattr(model, name) for name in names}


@after_loading
def check_functional_options(trainer, extra_state: dict, resumes: bool) -> None:
    """After ``load_checkpoint``: refuse to resume with a different functional option.

    fairseq would load the weights, which have the same shapes. An option that is newer than the
    checkpoint counts as having its default there.

    Raises:
        UserError: an option has changed.
    """
    saved, model = extra_state.get("meanings"), trainer.cfg.model
    if saved is None or not resumes:
        return
    for name, default in functional_options(model).items():
        before, now = saved.get(name, default), getattr(model, name)
        if before != now:
            raise UserError(
                f"the training to be resumed has {with_value(name, before)}, not "
                f"{with_value(name, now)}; give it the options it began with, or take only its "
                "weights, with --finetune-from-model and another --save-dir"
            )


def with_value(name: str, value: object) -> str:
    """An option and its value as they are written on the command line."""
    option = as_option(name)
    if isinstance(value, bool):
        return option if value else f"no {option}"
    return f"{option} {value}"
