"""``casrnn prepare tagging``: binarise words with tags."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fairseq_casrnn.data.columns import without_spaces
from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.data.labelled import TaggedCorpus, TaggedSentence, prepare
from fairseq_casrnn.data.readers import add_vocabulary, add_zero_digits
from fairseq_casrnn.data.spans import (
    BARE,
    as_bioes,
    count_orphan_continuations,
    find_scheme,
    non_span_tags,
)
from fairseq_casrnn.data.symbols import check_class
from fairseq_casrnn.errors import UserError, quoted
from fairseq_casrnn.prepare.column_files import ColumnFile, Rows, read_column_file
from fairseq_casrnn.prepare.options import add_options, check_options
from fairseq_casrnn.prepare.splitting import hold_out_missing


@dataclass
class TaggedRow:
    """A sentence in a file.

    Args:
        words: the words, as in the file.
        tags: the tags, as in the file.
        line: number of its first line.
        path: the file.
    """

    words: list[str]
    tags: list[str]
    line: int
    path: Path

    def original(self) -> dict[str, object]:
        """The original sentence, for evaluations."""
        return {"line": self.line, "words": self.words}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Binarise tagged sentences: one word per line, columns separated by white space "
        "or tabs, and a blank line after each sentence (CoNLL, CoNLL-U, GermEval, …). "
        "Span tags may be IOB1, IOB2, BIOES, BILOU or BMES and are converted to BIOES. "
        "fairseq-train reads DIR/data-bin."
    )
    add_options(parser, "a file with columns", "raw text is split into words when tagging")
    add_vocabulary(parser)
    parser.set_defaults(tokenizer=None)
    parser.add_argument(
        "--columns",
        metavar="NAME,…",
        help=(
            "names of the first columns, such as _,word,tag: one is word, one is tag, the "
            "others are _ (default: the first and the last column; CoNLL-U: FORM and UPOS)"
        ),
    )
    add_zero_digits(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if a file or option is invalid."""
    check_options(args)
    chosen = parse_columns(args.columns) if args.columns else None
    prepare(lambda: read_corpus(args, chosen), args)


class Chosen(NamedTuple):
    """What ``--columns`` names.

    Args:
        word: position of the words.
        tag: position of the tags.
        named: number of columns that have a name.
    """

    word: int
    tag: int
    named: int


def parse_columns(text: str) -> Chosen:
    """Read ``--columns``. Raises UserError if it names no word or no tag, or something else."""
    names = [name.strip().lower() for name in text.rstrip(" ,").split(",")]
    if names.count("word") != 1 or names.count("tag") != 1:
        raise UserError(f"--columns is {text}; name one word and one tag, such as word,_,_,tag")
    if other := set(names) - {"word", "tag", "_", ""}:
        raise UserError(
            f"--columns has {min(other)}; write word, tag, and _ for a column that is not read"
        )
    return Chosen(names.index("word"), names.index("tag"), len(names))


def read_corpus(args: argparse.Namespace, columns: Chosen | None) -> TaggedCorpus:
    """Read the splits, and set ``args.raw_tokenizer``, the tokenizer for raw text.

    Raises:
        UserError: a file is invalid.
    """
    notes: dict[str, object] = {}
    splits = {
        name: read_split(name, getattr(args, name), columns, notes)
        for name in SPLITS
        if getattr(args, name)
    }
    check_columns(splits["train"])
    keys = [tuple(row.words) for row in splits["train"]]
    notes |= hold_out_missing(splits, keys, None, args.split_seed, " of the sentences")
    check_tags(splits)
    convert_spans(splits, notes)
    args.raw_tokenizer = args.tokenizer or usual_tokenizer(splits["train"])
    notes["raw text, when tagging, is split by"] = args.raw_tokenizer
    sentences = {
        name: [TaggedSentence(list(map(without_spaces, row.words)), row.tags) for row in rows]
        for name, rows in splits.items()
    }
    originals = {name: [row.original() for row in rows] for name, rows in splits.items()}
    return TaggedCorpus({name: sentences[name] for name in SPLITS}, notes, originals)


def read_split(
    name: str, path: Path, columns: Chosen | None, notes: dict[str, object]
) -> list[TaggedRow]:
    """Read the sentences of a file. Raises UserError if a word or tag is missing or invalid."""
    file = read_column_file(path)
    if columns is None:
        word, tag = (1, 3) if file.is_conllu() else (0, file.width - 1)
        columns = Chosen(word, tag, file.width)
    word, tag, named = columns
    if named > file.width:
        raise UserError(f"--columns names {named} columns, but {path} has {file.width}; correct it")
    if name == "train":
        notes["columns"] = f"word: column {word + 1}, tag: column {tag + 1} of {file.width}"
    for kind, count in file.left_out.items():
        if count:
            notes[f"{name}: {kind} left out"] = count
    return [sentence_of(file, rows, word, tag) for rows in file.sentences]


def sentence_of(file: ColumnFile, rows: Rows, word: int, tag: int) -> TaggedRow:
    """Make a sentence of its lines. Raises UserError if a word or tag is missing or invalid."""
    for number, row in rows:
        # A word may be a space of Unicode, such as the ideographic one.
        for column, what, cell in ((word, "word", row[word]), (tag, "tag", row[tag].strip())):
            if not cell:
                raise UserError(
                    f"{file.path}, line {number} has no {what} in column {column + 1}; write one, "
                    "or choose other --columns"
                )
    tags = ["_".join(row[tag].split()) for _, row in rows]
    for (number, _), name in zip(rows, tags, strict=True):
        check_class(name, "tag", f"{file.path}, line {number}")
    return TaggedRow([row[word] for _, row in rows], tags, rows[0][0], file.path)


def check_columns(sentences: list[TaggedRow]) -> None:
    """Raise UserError if the columns cannot be words and tags."""
    words = Counter(word for row in sentences for word in row.words)
    tags = Counter(tag for row in sentences for tag in row.tags)
    path, total = sentences[0].path, words.total()
    numbers = sum(count for word, count in words.items() if word.isdigit())
    remedy = "choose other --columns, such as _,word,tag"
    if numbers > 0.8 * total:
        raise UserError(
            f"{path}: {numbers} of {total} words are numbers, such as "
            f"{quoted(sentences[0].words[0])}; {remedy}"
        )
    if len(tags) > max(50, total // 20):
        raise UserError(
            f"{path}: {len(tags)} different tags of {total} words, such as "
            f"{quoted(sentences[0].tags[0])}; {remedy}"
        )
    if len(words) <= len(tags) or (len(words) < 100 and total > 200 * len(words)):
        raise UserError(
            f"{path}: only {len(words)} different words in {total}, such as "
            f"{quoted(words.most_common(1)[0][0])}, with {len(tags)} tags; {remedy}"
        )


def check_tags(splits: dict[str, list[TaggedRow]]) -> None:
    """Raise UserError if no tag of a file occurs in training, or some tags are not span tags."""
    known = {tag for row in splits["train"] for tag in row.tags}
    scheme = find_scheme([row.tags for row in splits["train"]])
    for name, rows in splits.items():
        tags = Counter(tag for row in rows for tag in row.tags)
        others = set(non_span_tags(tags))
        first = next((row for row in rows if others.intersection(row.tags)), None)
        if first and (scheme or is_few(others, tags)):
            tag = next(tag for tag in first.tags if tag in others)
            leave = "" if name == "train" else f", or leave out --{name}"
            raise UserError(
                f"{first.path}: the sentence from line {first.line} on has the tag {quoted(tag)}, "
                "but other tags mark spans, such as B-PER, and words outside have O; correct it, "
                f"or choose other --columns{leave}"
            )
        if not known & tags.keys():
            raise UserError(
                f"{rows[0].path}: no tag, such as {quoted(rows[0].tags[0])}, is one of --train "
                f"({', '.join(sorted(known)[:20])}); correct them, or choose other --columns"
            )


def is_few(others: set[str], tags: Counter) -> bool:
    """Whether these tags are so few beside tags of spans that they must be mistakes."""
    few = sum(tags[tag] for tag in others) < 0.05 * tags.total() or others == {"_"}
    return few and any(tag.startswith("B-") for tag in tags)


def convert_spans(splits: dict[str, list[TaggedRow]], notes: dict[str, object]) -> None:
    """Convert span tags to BIOES, and add their scheme to the notes."""
    every = [row for rows in splits.values() for row in rows]
    tags = [row.tags for row in every]
    scheme = find_scheme(tags)
    if scheme is None:
        notes["spans"] = "none: tags stay as they are"
        return
    bare = any(len(tag) == 1 and tag != "O" for row in tags for tag in row)
    notes["spans"] = f"{scheme}, turned into BIOES" + (f" with the type {BARE}" if bare else "")
    if scheme == "IOB2" and (orphans := count_orphan_continuations(tags)):
        notes["tags that continue no span, read as its beginning"] = orphans
    for row in every:
        row.tags = as_bioes(row.tags)


def usual_tokenizer(sentences: list[TaggedRow]) -> str:
    """``character`` if nearly all words are single characters, as in Chinese; else ``penn``."""
    sizes = [len(word) for row in sentences for word in row.words]
    return "character" if sum(size == 1 for size in sizes) > 0.9 * len(sizes) else "penn"
