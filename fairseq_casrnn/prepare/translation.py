"""``casrnn prepare translation``: tokenise, encode in subword units and binarise sentence pairs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from itertools import compress
from pathlib import Path

from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.data.prepared import TOKENS
from fairseq_casrnn.data.readers import add_split_seed
from fairseq_casrnn.data.text import (
    LANGUAGE,
    Pair,
    check_parallel,
    ending,
    is_clean,
    tokenize_pairs,
)
from fairseq_casrnn.data.translation import ParallelCorpus, prepare, sides_of
from fairseq_casrnn.data.translation import add_arguments as add_output
from fairseq_casrnn.errors import UserError, check_at_least, quoted
from fairseq_casrnn.prepare.options import add_sentencepiece
from fairseq_casrnn.prepare.splitting import hold_out_missing
from fairseq_casrnn.prepare.table_files import read_utf8

MOST = 2000  # maximum number of pairs held out for each of valid and test
# Names of columns in a header, besides the codes of the languages.
SOURCE_NAMES = {"source", "src", "source_text", "source_sentence"}
TARGET_NAMES = {"target", "tgt", "trg", "target_text", "target_sentence"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Tokenise sentence pairs by Moses' rules, lower-case them, learn and apply "
        "subword units, and binarise them. Training leaves out pairs that are too long "
        "or too different in length, repeated pairs, and sources that occur in valid or "
        "test. fairseq-train reads DIR/data-bin."
    )
    form = "two parallel files named by language (x.de x.en), or a tab-separated file"
    parser.add_argument("--train", required=True, type=Path, nargs="+", metavar="FILE", help=form)
    for name in ("valid", "test"):
        text = f"the same for {name} (default: a random tenth of --train, at most {MOST})"
        parser.add_argument(f"--{name}", type=Path, nargs="+", metavar="FILE", help=text)
    for side in ("source", "target"):
        text = f"code of the {side} language (default: the extension of its file)"
        parser.add_argument(f"--{side}-lang", metavar="CODE", help=text)
    add_split_seed(parser)
    parser.add_argument(
        "--max-length",
        type=int,
        default=175,
        help="maximum length of training sentences and of those held out, in tokens (default: 175)",
    )
    parser.add_argument(
        "--max-ratio",
        type=float,
        default=9,
        help="maximum length ratio of training pairs (default: 9)",
    )
    add_sentencepiece(add_output(parser), "the byte-pair encoding")


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if a file or option is invalid."""
    for name in SPLITS:
        if len(files := getattr(args, name) or ()) > 2:
            raise UserError(f"--{name} has {len(files)} files; give two, or one with tabs")
    for number, side in enumerate(("source", "target")):
        option = f"{side}_lang"
        setattr(args, option, getattr(args, option) or language_of(args.train, number))
        if not LANGUAGE.fullmatch(getattr(args, option)):
            raise UserError(f"--{side}-lang is {getattr(args, option)}; give a code such as de")
    if args.source_lang == args.target_lang:
        raise UserError(
            f"source and target are both {args.source_lang}; give different codes with "
            "--source-lang and --target-lang"
        )
    check_at_least(1, max_length=args.max_length, max_ratio=args.max_ratio)
    prepare(lambda: read_corpus(args), args)


def language_of(files: Sequence[Path], number: int) -> str:
    """The language code in a file's name. Raises UserError if there is none."""
    side = ("source", "target")[number]
    if len(files) == 2:
        name = files[number]
        found = ending(name).removeprefix(".")
        if LANGUAGE.fullmatch(found) and found not in ("tsv", "txt"):
            return found
        raise UserError(f"the name of {name} has no {side} language; give --{side}-lang")
    raise UserError(
        f"{files[0]} is a single file; give --source-lang and --target-lang if it has pairs "
        "separated by tabs, or else a file for each language"
    )


def read_corpus(args: argparse.Namespace) -> ParallelCorpus:
    """Read and tokenise the splits. Raises UserError if a file is invalid."""
    notes: dict[str, object] = {}
    raw = {
        name: read_pairs(name, getattr(args, name), args, notes)
        for name in SPLITS
        if getattr(args, name)
    }
    if missing := [name for name in SPLITS if name not in raw]:
        pairs = [pair for pair in raw["train"] if all(map(str.strip, pair))]
        if empty := len(raw["train"]) - len(pairs):
            notes["pairs with an empty side, left out"] = empty
        raw["train"], sources = pairs, [source for source, _ in pairs]
        what = f", at most {MOST} pairs,"
        notes |= hold_out_missing(raw, sources, None, args.split_seed, what, MOST)
    raw["train"] = drop_repeated(raw, notes)
    tokenised = {name: tokenise(name, raw[name], args) for name in SPLITS}
    for name in SPLITS[1:]:
        fit = [max(map(word_count, pair)) <= args.max_length for pair in tokenised[name]]
        long = fit.count(False)
        if long and name not in missing:
            notes[f"longer than --max-length, but kept in {name}"] = long
        elif long:
            notes[f"longer than --max-length, left out of {name}"] = long
            tokenised[name] = list(compress(tokenised[name], fit))
            raw[name] = list(compress(raw[name], fit))
    tokenised["train"] = clean(tokenised["train"], args, notes)
    return ParallelCorpus(args.source_lang, args.target_lang, tokenised, raw["test"], notes)


def clean(pairs: list[Pair], args: argparse.Namespace, notes: dict[str, object]) -> list[Pair]:
    """The training pairs that are neither empty, too long, nor too different in length.

    Raises:
        UserError: there are none.
    """
    kept = [
        pair for pair in pairs if is_clean(*pair, max_len=args.max_length, ratio=args.max_ratio)
    ]
    if dropped := len(pairs) - len(kept):
        notes["empty, too long or too different in length, left out of train"] = dropped
    if not kept:
        raise UserError("no pair is left for training; check --max-length and --max-ratio")
    notes[TOKENS] = sum(1 + max(map(word_count, pair)) for pair in kept)
    return kept


def read_pairs(
    name: str, files: Sequence[Path], args: argparse.Namespace, notes: dict[str, object]
) -> list[Pair]:
    """Read the pairs of two files, or of the first two columns of one.

    A first row with names of the columns is left out; this, and further columns, go into the notes.

    Args:
        name: the split, for the notes.
        files: two parallel files, or one with tabs.
        args: ``source_lang`` and ``target_lang``, which may be names of columns.
        notes: what to print; changed.

    Raises:
        UserError: their lengths differ, a line lacks two columns, one of them has numbers, or there
            is only a header.
    """
    if len(files) == 2:
        sources, targets = map(read_utf8, files)
        check_parallel(sources, targets, files[0], files[1])
        return list(zip(sources, targets, strict=True))
    lines = read_utf8(files[0])
    while not lines[-1].strip():
        lines.pop()
    header = is_header(files[0], lines[0], args)
    if header:
        notes[f"{name}: the first row, left out as a header"] = ", ".join(lines[0].split("\t")[:2])
    pairs, wide = [], 0
    for number, line in enumerate(lines[header:], start=1 + header):
        source, tab, rest = line.partition("\t")
        if not tab:
            raise UserError(
                f"{files[0]}, line {number} has no tab; write SOURCE<TAB>TARGET, or give two files"
            )
        target, more, _ = rest.partition("\t")
        pairs.append((source, target))
        wide += bool(more)
    if not pairs:
        raise UserError(f"{files[0]} has a header but no rows; give a file with pairs")
    if wide:
        what = f"{name}: lines with more than two columns, of which the first two are used"
        notes[what] = wide
    check_texts(files[0], pairs)
    return pairs


def check_texts(path: Path, pairs: list[Pair]) -> None:
    """Raise UserError if a column of the file has numbers, such as those of the lines."""
    for number, side in enumerate(sides_of(pairs), start=1):
        numbers = [text for text in side if re.fullmatch(r"[0-9.]+", text.strip())]
        if len(numbers) > 0.8 * len(pairs):
            raise UserError(
                f"{path}: column {number} has numbers, such as {quoted(numbers[0])}; write "
                "SOURCE<TAB>TARGET in the first two columns"
            )


def is_header(path: Path, line: str, args: argparse.Namespace) -> bool:
    """Whether the first line of a file names the columns: by language, or as source and target.

    Raises:
        UserError: it names them in the other order.
    """
    first, second, *_ = [name.strip() for name in f"{line.lower()}\t".split("\t")]
    sources, targets = {*SOURCE_NAMES, args.source_lang}, {*TARGET_NAMES, args.target_lang}
    if first in targets and second in sources:
        raise UserError(
            f"the first line of {path} names the columns {first} and {second}; write the source "
            "first, or exchange --source-lang and --target-lang"
        )
    return first in sources and second in targets


def drop_repeated(raw: dict[str, list[Pair]], notes: dict[str, object]) -> list[Pair]:
    """The different training pairs whose source is not in valid or test.

    Raises:
        UserError: there are none.
    """
    held = {source.strip() for name in SPLITS[1:] for source, _ in raw[name]}
    once = list(dict.fromkeys(raw["train"]))
    kept = [pair for pair in once if pair[0].strip() not in held or not pair[0].strip()]
    for what, count in (
        ("repeated pairs, left out of train", len(raw["train"]) - len(once)),
        ("pairs whose source is in valid or test, left out of train", len(once) - len(kept)),
    ):
        if count:
            notes[what] = count
    if not kept:
        raise UserError(
            "every source of --train is also in --valid or --test; give these other files"
        )
    return kept


def tokenise(name: str, pairs: list[Pair], args: argparse.Namespace) -> list[Pair]:
    """The pairs, tokenised and lower-cased."""
    print(f"tokenising {len(pairs)} pairs of {name}", flush=True)
    return tokenize_pairs(pairs, (args.source_lang, args.target_lang), args.workers)


def word_count(text: str) -> int:
    """The number of words of tokenised text."""
    return len(text.split())
