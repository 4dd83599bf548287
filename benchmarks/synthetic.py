"""Random data of real corpora's sizes, binarised for fairseq.

python benchmarks/synthetic.py FOLDER      # prints the data-bin of random sentence pairs
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import fairseq_cli.preprocess
from fairseq import options

WORDS = {"de": 7068, "en": 5204}
"""Sizes of Multi30k's vocabularies; a dictionary adds four symbols."""
TEXT_WORDS = 33274
"""Likewise of WikiText-2's."""


def zipf(count: int) -> tuple[list[str], list[float]]:
    """``count`` words and their weights."""
    return [f"w{number}" for number in range(count)], [1 / (rank + 3) for rank in range(count)]


def write_dictionary(path: Path, words: list[str]) -> None:
    """A dictionary for fairseq-preprocess."""
    path.write_text("".join(f"{word} 1\n" for word in words))


def preprocess(*arguments: str) -> None:
    """fairseq-preprocess in this process; what it prints goes to standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        parser = options.get_preprocessing_parser()
        fairseq_cli.preprocess.main(parser.parse_args(list(arguments)))
    finally:
        sys.stdout = out


def write(folder: str, sentences: int = 4000, seed: int = 1) -> str:
    """Sentence pairs of Multi30k's lengths: the path of a data-bin in ``folder``.

    A tenth of the training set is the one for validation, too.
    """
    rng, root = random.Random(seed), Path(folder)
    lengths = [max(4, round(rng.gauss(14, 4))) for _ in range(sentences)]
    for language, count in WORDS.items():
        words, weights = zipf(count)
        lines = [" ".join(rng.choices(words, weights, k=length)) for length in lengths]
        (root / f"train.{language}").write_text("".join(line + "\n" for line in lines))
        few = "".join(line + "\n" for line in lines[: sentences // 10])
        (root / f"valid.{language}").write_text(few)
        write_dictionary(root / f"dict.{language}.txt", words)
    preprocess(
        *("--source-lang=de", "--target-lang=en", f"--destdir={root / 'bin'}"),
        *(f"--trainpref={root / 'train'}", f"--validpref={root / 'valid'}"),
        *(f"--srcdict={root / 'dict.de.txt'}", f"--tgtdict={root / 'dict.en.txt'}"),
    )
    return str(root / "bin")


def write_text(folder: str, tokens: int, seed: int = 1) -> str:
    """A text of about ``tokens`` words in lines of 25: the path of a data-bin in ``folder``."""
    rng, root = random.Random(seed), Path(folder)
    words, weights = zipf(TEXT_WORDS)
    lines = [" ".join(rng.choices(words, weights, k=24)) + "\n" for _ in range(tokens // 25 + 1)]
    (root / "text").write_text("".join(lines))
    write_dictionary(root / "dict.txt", words)
    text = [f"--trainpref={root / 'text'}", f"--srcdict={root / 'dict.txt'}"]
    preprocess("--only-source", *text, f"--destdir={root / 'bin'}")
    return str(root / "bin")


if __name__ == "__main__":
    print(write(sys.argv[1]))
