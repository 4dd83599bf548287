"""Mistakes with text, dictionaries and binarised data."""

import re

from fairseq_casrnn.diagnostics.frames import Rules, local
from fairseq_casrnn.errors import quoted


def _unknown_languages(error: Exception) -> str | None:
    paths = local(error, "setup_task", "paths")
    if not paths or "Could not infer language pair" not in str(error):
        return None
    return (
        f"{paths[0]} holds no binarised translation data (SPLIT.SOURCE-TARGET.*); check the "
        "folder, or fill it with fairseq-preprocess"
    )


def _other_format(error: TypeError) -> str | None:
    """A format whose files are not there, although those of another one are."""
    datasets, impl = (
        local(error, "load_langpair_dataset", name) for name in ("src_datasets", "dataset_impl")
    )
    if not datasets or datasets[-1] is not None:
        return None
    prefix = local(error, "load_langpair_dataset", "prefix")
    return f"{prefix}* is no data of --dataset-impl {impl}; drop that option"


def _odd_lengths(error: AssertionError) -> str | None:
    source = local(error, "load_langpair_dataset", "src_dataset")
    target = local(error, "load_langpair_dataset", "tgt_dataset")
    if source is None or target is None or len(source) == len(target):
        return None
    prefix = local(error, "load_langpair_dataset", "prefix")
    return (
        f"{prefix}{local(error, 'load_langpair_dataset', 'src')} has {len(source)} sentences but "
        f"{prefix}{local(error, 'load_langpair_dataset', 'tgt')} has {len(target)}; run "
        "fairseq-preprocess again, on files of equally many lines"
    )


def _bad_index(error: AssertionError) -> str | None:
    path = local(error, "make_dataset", "path")
    if path is None or not str(error).startswith("Index file doesn't match expected format"):
        return None
    return (
        f"{path}.idx is not an index of fairseq-preprocess; run it again, into a new folder, or "
        "check --dataset-impl"
    )


def _no_cache(error: KeyError) -> str | None:
    """fairseq 0.12.3 looks at the first batch before it has read any."""
    data = local(error, "__getitem__", "self")
    if not hasattr(data, "cache_index") or local(error, "first_batch", "self") is None:
        return None
    return (
        f"{data.path}.bin cannot be trained on with --dataset-impl cached; give --dataset-impl "
        "lazy, which reads the same files"
    )


def _bad_dictionary(error: Exception) -> str | None:
    name = getattr(local(error, "add_from_file", "f"), "name", None)
    line = re.search(r"expected '<token> <cnt> \[flags]': \"(.*)\"", str(error), re.DOTALL)
    twice = re.search(r"Duplicate word found when loading Dictionary: '(.*?)'\. ", str(error))
    if name is None or not (line or twice):
        return None
    if twice:
        what = f"lists {quoted(twice[1])} twice"
    else:
        what = f"has a line without a count, {quoted(line[1].strip())}"
    return f"{name} {what}; use the dictionary that fairseq-preprocess wrote"


def _existing_dictionary(error: FileExistsError) -> str | None:
    if local(error, "main", "args") is None or error.filename is not None:
        return None
    return f"{error} exists already; give another --destdir, or use it with --srcdict and --tgtdict"


def _no_subwords(error: Exception) -> str | None:
    if isinstance(error, UnicodeDecodeError):
        codes = getattr(local(error, "__init__", "cfg"), "bpe_codes", None)
        return codes and f"{codes} is not valid UTF-8; check --bpe-codes"
    model = local(error, "__init__", "sentencepiece_model")
    if model is None or isinstance(error, ImportError):
        return None
    return f"{model} is not a model of SentencePiece; check --sentencepiece-model"


RULES: Rules = (
    (Exception, _unknown_languages),
    (TypeError, _other_format),
    (AssertionError, _odd_lengths),
    (AssertionError, _bad_index),
    (KeyError, _no_cache),
    ((ValueError, RuntimeError), _bad_dictionary),
    (FileExistsError, _existing_dictionary),
    ((OSError, RuntimeError, UnicodeDecodeError), _no_subwords),
)
