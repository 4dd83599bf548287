"""Explain mistakes with text, dictionaries and binarised data."""

from fairseq_casrnn.diagnostics.frames import Rules, frame_local


def _unequal_lengths(error: AssertionError) -> str | None:
    load = "fairseq.tasks.translation.load_langpair_dataset"
    names = ("src_dataset", "tgt_dataset", "prefix", "src", "tgt")
    source, target, prefix, src, tgt = (frame_local(error, load, name) for name in names)
    if source is None or target is None or len(source) == len(target):
        return None
    return (
        f"{prefix}{src} has {len(source)} sentences but {prefix}{tgt} has {len(target)}; run "
        "fairseq-preprocess again, on files of equally many lines"
    )


def _no_language_pair(error: Exception) -> str | None:
    if not str(error).startswith("Could not infer language pair"):
        return None
    setup = "fairseq.tasks.translation.TranslationTask.setup_task"
    (folder, *_) = frame_local(error, setup, "paths") or ["the data folder"]
    return (
        f"{folder} holds no binarised translation data (SPLIT.SOURCE-TARGET.*); check the folder, "
        "or fill it with fairseq-preprocess"
    )


def _no_languages(error: AssertionError) -> str | None:
    load = (
        "fairseq.tasks.multilingual_language_modeling.MultilingualLanguageModelingTask.load_dataset"
    )
    folder, languages = (frame_local(error, load, name) for name in ("data_path", "languages"))
    if folder is None or languages:
        return None
    return (
        f"{folder} has no subfolders, but --task multilingual_language_modeling reads one for "
        "each language; use --task language_modeling for a text in one language"
    )


def _no_cache(error: KeyError) -> str | None:
    """A sentence is accessed before it is read into the cache, as fairseq 0.12.3 does itself."""
    data = frame_local(
        error, "fairseq.data.indexed_dataset.IndexedCachedDataset.__getitem__", "self"
    )
    if data is None:
        return None
    return (
        f"{data.path}.bin does not work with --dataset-impl cached; give --dataset-impl lazy, "
        "which reads the same files"
    )


def _no_subwords(error: Exception) -> str | None:
    encoders = "fairseq.data.encoders"
    if isinstance(error, UnicodeDecodeError):
        cfg = frame_local(error, f"{encoders}.subword_nmt_bpe.SubwordNMTBPE.__init__", "cfg")
        return cfg and f"{cfg.bpe_codes} is not valid UTF-8; check --bpe-codes"
    init = f"{encoders}.sentencepiece_bpe.SentencepieceBPE.__init__"
    model = frame_local(error, init, "sentencepiece_model")
    if model is None or isinstance(error, ImportError):
        return None
    return f"{model} is not a model of SentencePiece; check --sentencepiece-model"


RULES: Rules = (
    (AssertionError, _unequal_lengths),
    (Exception, _no_language_pair),
    (AssertionError, _no_languages),
    (KeyError, _no_cache),
    ((OSError, RuntimeError, UnicodeDecodeError), _no_subwords),
)
