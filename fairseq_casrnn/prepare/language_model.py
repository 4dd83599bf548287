"""``casrnn prepare language-model``: tokenise and binarise a text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_casrnn.data import language_model
from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.data.subwords import SENTENCEPIECE, apply_pieces, learn_pieces
from fairseq_casrnn.data.text import COMPRESSED
from fairseq_casrnn.data.words import words
from fairseq_casrnn.errors import UserError, check_at_least, counted
from fairseq_casrnn.prepare.options import add_options, add_sentencepiece, check_options
from fairseq_casrnn.prepare.splitting import SHARE
from fairseq_casrnn.prepare.table_files import is_hidden, read_utf8, refuse_json

ENDINGS = (".txt", *COMPRESSED)
MIN_COUNT = 2  # default for words: <unk> is trained on words that occur once
MOST = 5000  # maximum number of lines held out for each of valid and test


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Split the lines of a text into words and binarise them; empty lines are skipped. Without "
        f"files for valid and test, the last {SHARE:.0%} of the text, at most {MOST} lines, are "
        "the test set, and as many before them are valid. fairseq-train reads DIR/data-bin."
    )
    form = (
        "a text with one sentence or paragraph per line, or a folder of such files (*.txt, *.gz, "
        "*.xz), which are read in the order of their names"
    )
    add_options(parser, form, "text is split into words", at_random=False)
    parser.set_defaults(lowercase=False, min_count=None)
    add_sentencepiece(parser, "words")


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if a file or option is invalid."""
    check_options(args)
    pieces = args.sentencepiece
    check_at_least(1, sentencepiece=pieces, min_count=args.min_count)
    if pieces is not None and args.min_count is not None:
        raise UserError("--min-count is for words, not for --sentencepiece; drop one of them")
    if args.min_count is None:
        args.min_count = MIN_COUNT if pieces is None else 1
    language_model.prepare(lambda text: read_units(args, text), args, args.min_count)


def read_units(args: argparse.Namespace, text: Path) -> dict[str, list[str]]:
    """The lines of each split, in words or pieces; writes SentencePiece's model into ``text``.

    Raises:
        UserError: a file is invalid, or there are too many different characters.
    """
    splits = read_corpus(args)
    if args.sentencepiece is None:
        return splits
    print(f"learning {args.sentencepiece} pieces of SentencePiece", flush=True)
    model = learn_pieces(splits["train"], args.sentencepiece)
    (text / SENTENCEPIECE).write_bytes(model)
    return {name: apply_pieces(lines, model) for name, lines in splits.items()}


def read_corpus(args: argparse.Namespace) -> dict[str, list[str]]:
    """The tokenised lines of each split. Raises UserError if a file is invalid."""
    splits = {name: read_text(getattr(args, name), args) for name in SPLITS if getattr(args, name)}
    for name, lines in splits.items():
        if not lines:
            raise UserError(f"{getattr(args, name)} has no text; give another with --{name}")
    lines = splits["train"]
    for name in ("test", "valid"):
        if name in splits:
            continue
        size = min(max(1, round(SHARE * len(lines))), MOST)
        if size >= len(lines):
            raise UserError(
                f"--train has {counted(len(lines), 'line')}, too few to hold some out for {name}; "
                f"give more, or a file with --{name}"
            )
        print(f"held out: the last {size} of {len(lines)} lines for {name}")
        lines, splits[name] = lines[:-size], lines[-size:]
    return {"train": lines, "valid": splits["valid"], "test": splits["test"]}


def read_text(path: Path, args: argparse.Namespace, may_be_blank: bool = False) -> list[str]:
    """The tokenised lines of a file, or of all texts in a folder, without empty ones.

    Says on standard error if the text seems to be tokenised already.

    Raises:
        UserError: a file cannot be read, or is JSON, or a folder has no text.
    """
    if path.is_dir():
        visible = sorted(one for one in path.iterdir() if not is_hidden(one))
        files = [one for one in visible if one.is_file() and one.suffix.lower() in ENDINGS]
        if not files:
            raise UserError(f"{path} has no file *.txt, *.gz or *.xz; give a text")
        others = len(visible) - len(files)
        print(
            f"reading {counted(len(files), 'file')} of {path}"
            + (f", but not {counted(others, 'other')}" if others else "")
        )
        return [line for one in files for line in read_text(one, args, may_be_blank=True)]
    lines = read_utf8(path, may_be_blank)
    refuse_json(path, lines, "give a file with the text alone")
    marked = next((n for n, line in enumerate(lines, start=1) if "<unk>" in line.split()), None)
    if marked and args.tokenizer != "whitespace" and args.sentencepiece is None:
        print(
            f"warning: {path}, line {marked} has <unk>, which --tokenizer {args.tokenizer} splits; "
            "if the text is tokenised already, give --tokenizer whitespace",
            file=sys.stderr,
        )
    rows = (words(line, args.tokenizer, args.lowercase, args.language) for line in lines)
    return [" ".join(row) for row in rows if row]
