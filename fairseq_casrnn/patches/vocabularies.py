"""Whether a model has the words of the dictionaries it is used with, in the same order.

fairseq compares only sizes, so a model with another dictionary of the same size gives wrong results
without any message. A checkpoint written with this package holds a digest of each dictionary of its
task, and it is compared wherever fairseq loads the checkpoint: to go on training or fine-tune, to
translate, to score. Models that are to search together are compared once more, with each other.

A checkpoint written by fairseq alone holds no digest: of its dictionary nothing but the size can be
checked.
"""

from __future__ import annotations

import logging

from fairseq.data import Dictionary

from fairseq_casrnn.data.dictionaries import check_digest, digest
from fairseq_casrnn.errors import UserError

from .extra_state import after_loading

logger = logging.getLogger(__name__)


def keeps_state(task) -> bool:
    """Whether a checkpoint of a training keeps the state of ``task``, in which its digests are."""
    from fairseq.tasks.language_modeling import LanguageModelingTask
    from fairseq.tasks.translation import TranslationTask

    return isinstance(task, LanguageModelingTask | TranslationTask) or getattr(
        task, "resumes", False
    )


def keep_digests(trainer, filename, extra_state: dict) -> None:
    """Keep the digests of tasks whose state is not kept as a whole."""
    words = None if keeps_state(trainer.task) else digests(trainer.task)
    if words is not None:
        extra_state["words"] = words


@after_loading
def check_digests(trainer, extra_state: dict, resumes: bool) -> None:
    """Compare them with those of the checkpoint."""
    if "words" in extra_state:
        check_words(trainer.task, {"words": extra_state["words"]})


def add_digests(state: dict, task) -> dict:
    """The state of ``task`` with its digests."""
    words = digests(task)
    return state if words is None else {**state, "words": words}


def check_before_loading(task, state: dict) -> None:
    """Compare the words of ``task`` with those of its state in a checkpoint."""
    check_words(task, state)


def note_first_token(model, task, *args, **kwargs):
    """What a model reads first is an option of its task; who has the model alone must know it."""
    model.reads_bos = bool(getattr(task.args, "add_bos_token", False))
    return model


def digests(task) -> int | dict[str, int] | None:
    """The digest of a task's one dictionary, those of two by side, or None without dictionaries."""
    found = dictionaries(task)
    if len(found) < 2:
        return next((digest(one) for one in found.values()), None)
    return {side: digest(one) for side, one in found.items()}


def dictionaries(task) -> dict[str, Dictionary]:
    """A task's dictionaries by side: source and target, source alone if there is one, or none."""
    from fairseq.tasks.language_modeling import LanguageModelingTask

    if isinstance(task, LanguageModelingTask):  # the other is a part of it
        return {} if task.dictionary is None else {"source": task.dictionary}
    found = {}
    for side in ("source", "target"):
        try:
            dictionary = getattr(task, f"{side}_dictionary")
        except NotImplementedError:
            dictionary = None
        if not isinstance(dictionary, Dictionary):
            return {}
        found[side] = dictionary
    return {"source": found["source"]} if found["source"] is found["target"] else found


def check_words(task, state: dict) -> None:
    """Compare the dictionaries of ``task`` with those that a checkpoint was trained with.

    Args:
        task: any of fairseq's tasks; one that has ``check_words(state)`` compares by itself.
        state: that of the checkpoint's task; without ``words``, which fairseq alone does not keep,
            nothing can be compared.

    Raises:
        UserError: they differ.
    """
    if hasattr(task, "check_words"):
        task.check_words(state)
        return
    ours, trained = dictionaries(task), state.get("words")
    if trained is None or not ours:
        return
    options = getattr(task, "cfg", None) or task.args
    if len(ours) == 1:
        check_digest(trained, ours["source"], options.data)
        return
    if not isinstance(trained, dict):
        raise UserError(
            "the checkpoint is of a language model, sentence encoder or tagger, and this data "
            "and task are of translation; check the checkpoint's path"
        )
    for side, dictionary in ours.items():
        language = getattr(options, f"{side}_lang", None)
        if language is None:  # a training with several pairs of languages
            language = getattr(task, f"{side}_langs", [side])[0]
        check_digest(trained.get(side), dictionary, options.data, language)


def check_generator(generator, models, tgt_dict, beam_size=1, *args, **kwargs) -> None:
    """Check the size of a search, and compare the words of the models that search together.

    Raises:
        UserError: they do not fit.
    """
    if beam_size < 1:
        raise UserError(f"--beam is {beam_size}; it must be at least 1")
    top = getattr(kwargs.get("search_strategy"), "sampling_topk", -1)
    if top > len(tgt_dict):
        raise UserError(
            f"--sampling-topk is {top}; it must not be greater than the size of the target "
            f"dictionary, {len(tgt_dict)}"
        )
    lm = kwargs.get("lm_model")
    check_ensemble(getattr(models, "models", models), tgt_dict, lm)
    if lm is not None and not kwargs.get("lm_weight", 1):
        logger.warning("--lm-weight is 0, as it is unless given: the language model has no effect")


def check_ensemble(models, target: Dictionary, lm=None) -> None:
    """Compare the words of models that are to search together.

    Args:
        models: translation models, or language models.
        target: dictionary of what they generate.
        lm: language model whose log-probabilities are added, or None.

    Raises:
        UserError: one has other words than ``target``, or reads other words than the first; ``lm``
            is no language model, or reads <s> first.
    """
    from fairseq.models import FairseqLanguageModel

    read = [getattr(getattr(model, "encoder", None), "dictionary", None) for model in models]
    written = [getattr(getattr(model, "decoder", None), "dictionary", None) for model in models]
    if not (all(same(one, target) for one in written) and all(same(one, read[0]) for one in read)):
        raise UserError(
            "the models have different words, or the same in another order; search with models "
            "that were trained with the same dictionaries (fairseq-preprocess --srcdict, --tgtdict)"
        )
    if lm is None:
        return
    if not isinstance(lm, FairseqLanguageModel):
        raise UserError(f"the model of --lm-path is a {type(lm).__name__}, not a language model")
    if getattr(lm, "reads_bos", False):
        raise UserError(
            "the language model of --lm-path was trained with --add-bos-token, but the search "
            "begins with </s> alone; train one without that option"
        )
    if not same(lm.decoder.dictionary, target):
        raise UserError(
            "the language model of --lm-path has other words than the target dictionary, or the "
            "same in another order; train one on data binarised with the target dictionary "
            "(fairseq-preprocess --only-source --srcdict)"
        )


def same(one: Dictionary | None, other: Dictionary | None) -> bool:
    """Whether two dictionaries give each word the same number; unknown ones may."""
    if one is other or one is None or other is None:
        return True
    return len(one) == len(other) and all(one[i] == other[i] for i in range(len(one)))
