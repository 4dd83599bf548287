"""Multi30k German–English image captions: ``python -m fairseq_casrnn.data.corpora.multi30k``.

The raw files are those of https://github.com/multi30k/dataset (``data/task1/raw``): 29,000
training, 1,014 validation and 1,000 test pairs (test_2016_flickr).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_casrnn.data.text import is_clean, read_parallel, tokenize_pairs
from fairseq_casrnn.data.translation import ParallelCorpus, command
from fairseq_casrnn.errors import UserError

LANGUAGES = ("de", "en")
STEMS = {
    "train": ("train",),
    "valid": ("val", "valid"),
    "test": ("test_2016_flickr", "test2016", "test"),
}
WHERE = "get the raw files from https://github.com/multi30k/dataset (data/task1/raw)"


def find_file(raw: Path, split: str, lang: str) -> Path:
    """The raw file of a split and language, under any of its usual names.

    Raises:
        UserError: the folder or the file is missing.
    """
    if not raw.is_dir():
        raise UserError(f"{raw} is not a folder; {WHERE} and name their folder with --raw")
    names = [
        f"{stem}{infix}.{lang}{suffix}"
        for stem in STEMS[split]
        for infix in (".raw", "")
        for suffix in (".gz", "")
    ]
    for name in names:
        if (raw / name).is_file():
            return raw / name
    raise UserError(f"{raw} holds no {names[2]} (nor {names[0]}); {WHERE}")


def read_corpus(raw: Path, workers: int = 1) -> ParallelCorpus:
    """Read, tokenise and lower-case the three splits; drop training pairs with an empty side."""
    files = {split: [find_file(raw, split, lang) for lang in LANGUAGES] for split in STEMS}
    raw_pairs = {split: read_parallel(*paths) for split, paths in files.items()}
    splits = {}
    for split, pairs in raw_pairs.items():
        print(f"tokenising {len(pairs)} pairs of {split}", flush=True)
        splits[split] = tokenize_pairs(pairs, LANGUAGES, workers)
    kept = [pair for pair in splits["train"] if is_clean(*pair, ratio=None)]
    notes: dict[str, object] = {"training pairs dropped": len(splits["train"]) - len(kept)}
    splits["train"] = kept
    return ParallelCorpus(*LANGUAGES, splits, raw_pairs["test"], notes)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument("--raw", required=True, type=Path, help=f"folder of raw files; {WHERE}")


main = command(
    "Tokenise and lower-case Multi30k de-en, apply joint BPE, and binarise it.",
    lambda args: read_corpus(args.raw, args.workers),
    options,
)


if __name__ == "__main__":
    sys.exit(main())
