"""What a resumed training needs and fairseq's checkpoints lack: saved, restored and compared."""

from __future__ import annotations

from fairseq_casrnn.errors import UserError, as_option
from fairseq_casrnn.patches import early_stopping
from fairseq_casrnn.patches.vocabularies import check_words, digests


def save_state(trainer, filename, extra_state: dict) -> None:
    """Before ``Trainer.save_checkpoint``: add to ``extra_state`` what fairseq does not save.

    This is the state of the task, or only the digests of its dictionaries; the counters of
    ``--patience``; the annealing of second-order LSTMs; and the functional options of the model.
    """
    from fairseq_casrnn.models.annealing import save_annealing  # models follow the patches

    model, task = trainer.cfg.model, trainer.task
    if names := functional_options(model):
        extra_state["meanings"] = {name: getattr(model, name) for name in names}
    if resumes_state(task):
        extra_state["task"] = task.state_dict()
    elif (words := digests(task)) is not None:
        extra_state["words"] = words
    early_stopping.save_counters(extra_state)
    save_annealing(trainer, extra_state)


def restore_state(
    extra_state,
    trainer,
    filename,
    reset_optimizer=False,
    reset_lr_scheduler=False,
    optimizer_overrides=None,
    reset_meters=False,
):
    """After ``Trainer.load_checkpoint``: restore what :func:`save_state` has added.

    If a training only takes the weights (``--finetune-from-model``, ``--reset-…``), only the
    dictionaries are compared. ``extra_state`` is empty if there is no checkpoint.

    Raises:
        UserError: a functional option or a dictionary has changed.
    """
    if extra_state:
        resumes = not (reset_optimizer or reset_lr_scheduler or reset_meters)
        restore(trainer, extra_state, resumes)
    return extra_state


def restore(trainer, extra_state: dict, resumes: bool) -> None:
    """See :func:`restore_state`; ``resumes`` is False if only the weights are taken."""
    from fairseq_casrnn.models.annealing import restore_annealing

    if resumes:
        check_functional_options(trainer, extra_state)
    task, state = trainer.task, extra_state.get("task")
    if resumes and state is not None and resumes_state(task):
        task.load_state_dict(state)
    else:
        check_words(task, state or {"words": extra_state.get("words")})
    if resumes:
        early_stopping.restore_counters(trainer, extra_state)
        early_stopping.step_plateau(trainer, extra_state)
        restore_annealing(trainer, extra_state)


def resumes_state(task) -> bool:
    """Whether a resumed training restores the state of ``task``, which includes its digests."""
    from fairseq.tasks.language_modeling import LanguageModelingTask
    from fairseq.tasks.translation import TranslationTask

    return isinstance(task, LanguageModelingTask | TranslationTask) or getattr(
        task, "resumes", False
    )


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


def check_functional_options(trainer, extra_state: dict) -> None:
    """Refuse to resume with a different functional option.

    fairseq would load the weights, which have the same shapes. An option that is newer than the
    checkpoint counts as having its default there.

    Raises:
        UserError: an option has changed.
    """
    saved, model = extra_state.get("meanings"), trainer.cfg.model
    if saved is None:
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
