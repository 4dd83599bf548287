"""Check that a model is used with the dictionaries it was trained with.

fairseq compares only their sizes, so another dictionary of the same size silently gives wrong
results. Checkpoints written with this package hold a digest of each dictionary of the task. The
digests are compared whenever fairseq loads the checkpoint: to resume, fine-tune, translate or
score. The models of an ensemble are also compared with each other.

Checkpoints written by fairseq alone hold no digests, so only the sizes can be checked.
"""

from __future__ import annotations

import logging

from fairseq.data import Dictionary

from fairseq_casrnn.data.dictionaries import check_digest, digest
from fairseq_casrnn.errors import UserError, check_at_least

logger = logging.getLogger(__name__)


def add_digests(state: dict, task) -> dict:
    """After ``FairseqTask.state_dict``: add the digests."""
    words = digests(task)
    return state if words is None else {**state, "words": words}


def record_add_bos_token(model, task, *args, **kwargs):
    """After ``build_model``: note on the language model whether it reads <s> first.

    This is an option of its task, which is unknown to code that only has the model.
    """
    model.reads_bos = bool(getattr(task.args, "add_bos_token", False))
    return model


def digests(task) -> int | dict[str, int] | None:
    """The digest of a task's only dictionary, a digest for each side, or None if it has none."""
    found = dictionaries(task)
    if len(found) < 2:
        return next((digest(one) for one in found.values()), None)
    return {side: digest(one) for side, one in found.items()}


def dictionaries(task) -> dict[str, Dictionary]:
    """A task's dictionaries by side: source and target, source if both are one, or nothing."""
    from fairseq.tasks.language_modeling import LanguageModelingTask

    if isinstance(task, LanguageModelingTask):  # its output dictionary is a part of the other
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
    """Before ``FairseqTask.load_state_dict``: compare its dictionaries with the checkpoint's.

    Args:
        task: a fairseq task; its own ``check_words(state)`` takes precedence.
        state: the state of the checkpoint's task. Without the entry ``words``, which fairseq alone
            does not write, nothing is compared.

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
            "the checkpoint holds a language model, sentence encoder or tagger, but the task and "
            "its data are for translation; check the checkpoint's path"
        )
    for side, dictionary in ours.items():
        language = getattr(options, f"{side}_lang", None)
        if language is None:  # a multilingual task
            language = getattr(task, f"{side}_langs", [side])[0]
        check_digest(trained.get(side), dictionary, options.data, language)


def check_generator(generator, models, tgt_dict, beam_size=1, *args, **kwargs) -> None:
    """Before ``SequenceGenerator.__init__``: check beam size, sampling and dictionaries.

    Raises:
        UserError: one of them is invalid.
    """
    check_at_least(1, beam=beam_size)
    top = getattr(kwargs.get("search_strategy"), "sampling_topk", -1)
    if top > len(tgt_dict):
        raise UserError(
            f"--sampling-topk is {top}; it must not be greater than the size of the target "
            f"dictionary, {len(tgt_dict)}"
        )
    lm = kwargs.get("lm_model")
    check_ensemble(getattr(models, "models", models), tgt_dict, lm)
    if lm is not None and not kwargs.get("lm_weight", 1):
        logger.warning("--lm-weight is 0, its default: the language model has no effect")


def check_ensemble(models, target: Dictionary, lm=None) -> None:
    """Compare the dictionaries of the models of an ensemble.

    Args:
        models: translation models, or language models.
        target: dictionary of the generated text.
        lm: language model whose log-probabilities are added, or None.

    Raises:
        UserError: a model's target dictionary is not ``target``, its source dictionary is not the
            first model's, or ``lm`` is not a language model or reads <s> first.
    """
    from fairseq.models import FairseqLanguageModel

    sources = [getattr(getattr(model, "encoder", None), "dictionary", None) for model in models]
    targets = [getattr(getattr(model, "decoder", None), "dictionary", None) for model in models]
    same_targets = all(same_words(one, target) for one in targets)
    if not (same_targets and all(same_words(one, sources[0]) for one in sources)):
        raise UserError(
            "the models have different dictionaries; combine models that were trained with the "
            "same ones (fairseq-preprocess --srcdict, --tgtdict)"
        )
    if lm is None:
        return
    if not isinstance(lm, FairseqLanguageModel):
        raise UserError(f"the model of --lm-path is a {type(lm).__name__}, not a language model")
    if getattr(lm, "reads_bos", False):
        raise UserError(
            "the language model of --lm-path was trained with --add-bos-token, but the search "
            "starts with </s>; train one without that option"
        )
    if not same_words(lm.decoder.dictionary, target):
        raise UserError(
            "the dictionary of the language model of --lm-path differs from the target dictionary; "
            "train one on data binarised with the target dictionary "
            "(fairseq-preprocess --only-source --srcdict)"
        )


def same_words(one: Dictionary | None, other: Dictionary | None) -> bool:
    """Whether two dictionaries give each word the same index; None counts as equal."""
    if one is other or one is None or other is None:
        return True
    return len(one) == len(other) and all(one[i] == other[i] for i in range(len(one)))
