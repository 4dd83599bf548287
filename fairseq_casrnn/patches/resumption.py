"""A training goes on with the state of its task, and only with options that mean the same."""

from __future__ import annotations

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.extra_state import after_loading

from .vocabularies import check_words, keeps_state

#: Options of a model with which the same weights compute something else.
FUNCTIONAL_OPTIONS = (
    "connection",
    "encoder_attention_heads",
    "lam",
    "mlp_activation",
    "no_boundaries",
    "num_steps",
    "pooling",
)


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


def functional_options(trainer) -> dict:
    """Those that the model of ``trainer`` has, and their values."""
    model = trainer.cfg.model
    return {name: getattr(model, name) for name in FUNCTIONAL_OPTIONS if hasattr(model, name)}


def keep_functional_options(trainer, filename, extra_state: dict) -> None:
    """Keep them in the checkpoint."""
    if options := functional_options(trainer):
        extra_state["meanings"] = options


@after_loading
def check_functional_options(trainer, extra_state: dict, resumes: bool) -> None:
    """Refuse to resume with weights that would compute something else; fairseq loads them.

    Raises:
        UserError: an option has changed.
    """
    began = extra_state.get("meanings", {})
    for name, now in functional_options(trainer).items() if resumes else ():
        if began.get(name, now) != now:
            raise UserError(
                f"the training to be resumed has {spelled(name, began[name])}, not "
                f"{spelled(name, now)}; give it the options it began with, or take only its "
                "weights, with --finetune-from-model and another --save-dir"
            )


def spelled(name: str, value: object) -> str:
    """An option as it is written on the command line."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"no {option}"
    return f"{option} {value}"
