"""What fairseq would notice late, on some devices only, or never, looked at before it starts.

Each check wraps one function of fairseq and raises a UserError; a right input passes unchanged.
"""

import contextlib
import os
import struct
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy

from fairseq_casrnn.bounds import check_options
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.fitting import check_fit
from fairseq_casrnn.wrapping import is_hydra_train, program, wrap

# Of fairseq.data.indexed_dataset.MMapIndexedDataset.Index: magic, version, type code, sentences.
INDEX_HEADER = struct.Struct("<9sQBQ")
INDEX_MAGIC = b"MMIDIDX\x00\x00"
# Of its IndexedDataset: magic, version, type code, bytes of a token, sentences, lengths.
OLD_INDEX_HEADER = struct.Struct("<8sQQQQQ")
OLD_INDEX_MAGIC = b"TNTIDX\x00\x00"
PREPARE_AGAIN = "run fairseq-preprocess again, into a new folder"


def install() -> None:
    """Wrap fairseq's functions; again and again does no harm."""
    from fairseq import options
    from fairseq.data import indexed_dataset
    from fairseq.trainer import Trainer

    wrap(options, "parse_args_and_arch", _parse_args_and_arch)
    wrap(Trainer, "__init__", _init_trainer)
    wrap(indexed_dataset, "make_dataset", _make_dataset)


def install_for_program(path: str) -> None:
    """What concerns one of fairseq's programs only; ``path`` is ``sys.argv[0]`` of any of them."""
    name = Path(path).stem.removeprefix("fairseq-")
    if name == "preprocess":
        wrap(program(name), "main", _preprocess)
    if name in ("train", "hydra-train", "hydra_train"):
        from fairseq_casrnn import stopping

        stopping.install()
    if name == "interactive":
        # As fairseq reads a file. In the C locale Python lets invalid bytes pass, as characters
        # that no dictionary holds.
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")


# --- options -----------------------------------------------------------------------------------


def _parse_args_and_arch(original, *args, **kwargs):
    parsed = original(*args, **kwargs)
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    # What fairseq's parser puts for an option without a value, and its generator opens as a file.
    if getattr(args, "replace_unk", None) == "@@ ":
        args.replace_unk = ""
    check_options(vars(args))
    if "criterion" in args:
        check_fit(getattr(args, "arch", None), args.task, args.criterion)
    if "beam" in args and args.num_shards > 1:
        # fairseq-generate looks here for them.
        args.distributed_world_size, args.distributed_rank = args.num_shards, args.shard_id
    return parsed


def _init_trainer(original, self, cfg, *args, **kwargs):
    """For ``fairseq-hydra-train``, which parses no command line; it imports plugins late."""
    from omegaconf import OmegaConf

    groups = OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else {}
    for name in ("common", "dataset", "optimization", "checkpoint", "optimizer", "lr_scheduler"):
        if isinstance(group := groups.get(name), dict):
            check_options(group)
    check_model_name(getattr(cfg, "model", None))
    parts = (getattr(cfg, part, None) for part in ("model", "task", "criterion"))
    check_fit(*(getattr(part, "_name", None) for part in parts))
    original(self, cfg, *args, **kwargs)
    check_training(self)


def check_model_name(cfg) -> None:
    """Raise UserError where ``fairseq-hydra-train`` is given an architecture in place of a model.

    fairseq then builds the architecture's model with the sizes of none.
    """
    from fairseq.models import (
        ARCH_MODEL_NAME_REGISTRY,
        MODEL_DATACLASS_REGISTRY,
        MODEL_REGISTRY,
    )

    name = getattr(cfg, "_name", None)
    model = ARCH_MODEL_NAME_REGISTRY.get(name)
    if is_hydra_train() and name not in MODEL_REGISTRY and model in MODEL_DATACLASS_REGISTRY:
        raise UserError(
            f"{name} is an architecture, whose sizes only fairseq-train --arch knows; name the "
            f"model, model._name={model}, and give its sizes"
        )


def check_training(trainer) -> None:
    """Raise UserError where model, criterion and device do not fit: the first update would fail."""
    from fairseq.criterions.adaptive_loss import AdaptiveLoss

    from fairseq_casrnn.models.head import VocabularyHead

    if trainer.cfg.common.memory_efficient_fp16 and not trainer.cuda:
        raise UserError(
            "--memory-efficient-fp16 needs a GPU, and this training uses none; drop the option"
        )
    decoder = getattr(trainer.get_model(), "decoder", None)
    adaptive = getattr(decoder, "adaptive_softmax", None) is not None
    criterion = isinstance(trainer.get_criterion(), AdaptiveLoss)
    if adaptive and not criterion and isinstance(decoder, VocabularyHead):
        raise UserError(
            "--adaptive-softmax-cutoff needs --criterion adaptive_loss; give that one, or drop "
            "--adaptive-softmax-cutoff"
        )
    if criterion and not adaptive:
        raise UserError(
            "--criterion adaptive_loss needs --adaptive-softmax-cutoff; give that option, or "
            "another criterion"
        )


# --- binarised data ----------------------------------------------------------------------------


def _make_dataset(original, path, impl, fix_lua_indexing=False, dictionary=None):
    if impl in ("mmap", "lazy", "cached"):
        check_binarised(path, dictionary, impl, int(fix_lua_indexing))
    return original(path, impl, fix_lua_indexing, dictionary)


def check_binarised(path: str, dictionary=None, impl: str = "mmap", first: int = 0) -> None:
    """Check ``path.idx`` and ``path.bin``, as far as they are there.

    fairseq finds a truncated file when it comes to the missing part, which can be hours later, and
    a token beyond the embedding table never says which file it is from (on a GPU: nothing at all).

    Args:
        path: data set without its two endings.
        dictionary: the ``fairseq.data.Dictionary`` it will be used with, or None.
        impl: fairseq's name of the format: mmap, lazy or cached.
        first: what the file holds for token number 0.

    Raises:
        UserError: a file is truncated, the set is empty, or the dictionary is another one's.
    """
    index, data = f"{path}.idx", f"{path}.bin"
    if not (os.path.isfile(index) and os.path.isfile(data)):
        return
    dtype, tokens = _read_index(index) if impl == "mmap" else _read_old_index(index)
    if tokens == 0:
        raise UserError(f"{data} holds no sentence; {PREPARE_AGAIN}, from text that is not empty")
    if os.path.getsize(data) != tokens * dtype.itemsize:
        raise UserError(
            f"{data} is truncated or does not belong to its .idx file: it has "
            f"{os.path.getsize(data)} bytes instead of {tokens * dtype.itemsize}; {PREPARE_AGAIN}"
        )
    if dictionary is None:
        return
    largest = int(numpy.memmap(data, dtype, mode="r").max()) - first
    if largest >= len(dictionary):
        raise UserError(
            f"{data} contains token number {largest}, but {_dictionary_file(path)} has only "
            f"{len(dictionary)} entries: it is not the dictionary the data was made with; "
            "put that one in its place"
        )
    # A test set may have blank lines for translations that nobody knows.
    if largest <= dictionary.eos() and os.path.basename(path).startswith("train"):
        raise UserError(f"{data} holds no word, only blank lines; {PREPARE_AGAIN}, from other text")


def _read_index(index: str) -> tuple[numpy.dtype, int]:
    """The type and the number of tokens that an index file announces."""
    with open(index, "rb") as file:
        magic, _, code, sentences = _unpack(INDEX_HEADER, file)
        dtype = _type_of(code, index, magic == INDEX_MAGIC)
        # A length (int32) and a position (int64) for each sentence.
        _check_size(index, INDEX_HEADER.size + 12 * sentences)
        lengths = numpy.fromfile(file, numpy.int32, sentences)
    return dtype, int(lengths.sum(dtype=numpy.int64))


def _read_old_index(index: str) -> tuple[numpy.dtype, int]:
    """The same of the format that fairseq calls lazy or cached."""
    with open(index, "rb") as file:
        magic, _, code, _, sentences, count = _unpack(OLD_INDEX_HEADER, file)
        dtype = _type_of(code, index, magic == OLD_INDEX_MAGIC)
        # Two positions for each sentence and one end of each kind, then the lengths; all int64.
        positions = 2 * (sentences + 1)
        _check_size(index, OLD_INDEX_HEADER.size + 8 * (positions + count))
        file.seek(8 * positions, os.SEEK_CUR)
        lengths = numpy.fromfile(file, numpy.int64, count)
    return dtype, int(lengths.sum())


def _unpack(header: struct.Struct, file) -> tuple:
    """The values of the header; 0 for what a file is too short to hold."""
    return header.unpack(file.read(header.size).ljust(header.size, b"\0"))


def _type_of(code: int, index: str, known: bool) -> numpy.dtype:
    from fairseq.data.indexed_dataset import _code_to_dtype

    if not known or code not in _code_to_dtype:
        raise UserError(
            f"{index} is not an index of fairseq-preprocess; {PREPARE_AGAIN}, or check "
            "--dataset-impl"
        )
    return numpy.dtype(_code_to_dtype[code])


def _check_size(index: str, expected: int) -> None:
    size = os.path.getsize(index)
    if size != expected:
        raise UserError(
            f"{index} is truncated: it has {size} bytes instead of {expected}; {PREPARE_AGAIN}"
        )


def _dictionary_file(path: str) -> str:
    language = os.path.basename(path).rpartition(".")[2]  # train.de-en.de
    file = os.path.join(os.path.dirname(path), f"dict.{language}.txt")
    return file if os.path.isfile(file) else "its dictionary"


# --- text for fairseq-preprocess ---------------------------------------------------------------


def _preprocess(original, args: Namespace):
    check_options(vars(args))
    check_text(args)
    check_dictionaries(args)
    with _undone_on_failure(Path(args.destdir)):
        result = original(args)
        check_made(args)
        return result


def check_text(args: Namespace) -> None:
    """Check the files that ``fairseq-preprocess`` with the options ``args`` will read.

    fairseq does not compare the lengths of the two sides, and finds invalid UTF-8 (without saying
    where) when it has written half of its output.

    Raises:
        UserError: a file is missing, empty, blank or no UTF-8, or two sides differ in length.
    """
    tests = (args.testpref or "").split(",")
    for prefix, group in groupby(_text_files(args), key=lambda item: item[0]):
        files = [(name, *count_lines(name)) for _, name in group]
        for name, lines, blank in files:
            if lines == 0:
                raise UserError(f"{name} is empty; give a file with at least one sentence")
            if lines != files[0][1]:
                raise UserError(
                    f"{files[0][0]} has {files[0][1]} lines but {name} has {lines}; line n of one "
                    "must be the translation of line n of the other"
                )
            # A test set may come without translations.
            if blank and (prefix not in tests or name == files[0][0]):
                raise UserError(f"{name} has only blank lines; give a file with sentences")


def check_dictionaries(args: Namespace) -> None:
    """Check the dictionaries that ``fairseq-preprocess`` with the options ``args`` is given.

    Raises:
        UserError: one has no words, so that all text would become ``<unk>``.
    """
    for option in ("srcdict", "tgtdict"):
        name = getattr(args, option)
        if name and os.path.isfile(name) and count_lines(name)[1]:
            raise UserError(
                f"{name} holds no words; give --{option} a dictionary that fairseq-preprocess wrote"
            )


def check_made(args: Namespace) -> None:
    """Check the dictionaries that ``fairseq-preprocess`` with the options ``args`` wrote.

    Raises:
        UserError: no word was frequent enough for one, so that all text has become ``<unk>``.
    """
    from fairseq_casrnn.data.dictionaries import has_words

    sides = {"thresholdsrc": args.source_lang, "thresholdtgt": args.target_lang}
    for option, language in sides.items():
        name = f"dict.{language}.txt" if language else "dict.txt"
        path = Path(args.destdir) / name
        if getattr(args, option) > 0 and path.is_file() and not has_words(path):
            raise UserError(
                f"no word occurs --{option} {getattr(args, option)} times; give a smaller one"
            )


def _text_files(args: Namespace) -> Iterator[tuple[str, str]]:
    """(prefix, file) for the text files of each prefix, the source first."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    for prefixes in (args.trainpref, args.validpref, args.testpref):
        for prefix in prefixes.split(",") if prefixes else ():
            for language in languages:
                yield prefix, f"{prefix}.{language}" if language else prefix


def count_lines(name: str) -> tuple[int, bool]:
    r"""Lines of a text file as fairseq reads it, which end at ``\n``, ``\r`` or both.

    Returns:
        their number, and whether all are blank.

    Raises:
        UserError: the file is missing or not UTF-8.
    """
    lines, blank = 0, True
    try:
        with open(name, "rb") as file:
            for piece in file:
                blank = piece.decode("utf-8").isspace() and blank
                lines += len(piece.splitlines())
    except FileNotFoundError:
        raise UserError(f"{name} does not exist; check the path and the languages") from None
    except UnicodeDecodeError as error:
        line = lines + len(error.object[: error.start].splitlines() or [b""])
        raise UserError(
            f"{name}, line {line} is not valid UTF-8; convert the file to UTF-8"
        ) from None
    return lines, blank


@contextlib.contextmanager
def _undone_on_failure(folder: Path):
    """Remove what was written to ``folder`` if anything fails, a full disk or Ctrl-C say."""
    existed, before = folder.exists(), _versions(folder)
    try:
        yield
    except BaseException:
        for file, version in _versions(folder).items():
            # fairseq appends to a log that was there.
            if before.get(file) != version and (not existed or file.name != "preprocess.log"):
                file.unlink(missing_ok=True)
        if not existed:
            with contextlib.suppress(OSError):  # it has none, or holds what is not ours
                folder.rmdir()
        raise


def _versions(folder: Path) -> dict[Path, int]:
    files = folder.iterdir() if folder.is_dir() else ()
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}
