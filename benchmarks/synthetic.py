"""Random data with the sizes of real corpora, binarised for fairseq.

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
"""The size of WikiText-2's vocabulary, without those symbols."""


def zipf(count: int) -> tuple[list[str], list[float]]:
    """``count`` words and their weights, which follow Zipf's law."""
    return [f"w{number}" for number in range(count)], [1 / (rank + 3) for rank in range(count)]


def write_dictionary(path: Path, words: list[str]) -> None:
    """A dictionary for fairseq-preprocess."""
    path.write_text("".join(f"{word} 1\n" for word in words))


def preprocess(*arguments: str) -> None:
    """Run fairseq-preprocess in this process, with its output on standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        parser = options.get_preprocessing_parser()
        fairseq_cli.preprocess.main(parser.parse_args(list(arguments)))
    finally:
        sys.stdout = out


def write(folder: str, sentences: int = 4000) -> str:
    """Write sentence pairs with Multi30k's lengths; return the path of a data-bin in ``folder``.

    The validation set is the first tenth of the training set.
    """
    rng, root = random.Random(1), Path(folder)
    lengths = [max(4, round(rng.gauss(14, 4))) for _ in range(sentences)]
    for language, count in WORDS.items():
        words, weights = zipf(count)
        lines = [" ".join(rng.choices(words, weights, k=length)) for length in lengths]
        (root / f"train.{language}").write_text("".join(line + "\n" for line in lines))
        first_tenth = "".join(line + "\n" for line in lines[: sentences // 10])
        (root / f"valid.{language}").write_text(first_tenth)
        write_dictionary(root / f"dict.{language}.txt", words)
    preprocess(
        *("--source-lang=de", "--target-lang=en", f"--destdir={root / 'bin'}"),
        *(f"--trainpref={root / 'train'}", f"--validpref={root / 'valid'}"),
        *(f"--srcdict={root / 'dict.de.txt'}", f"--tgtdict={root / 'dict.en.txt'}"),
    )
    return str(root / "bin")


def write_text(folder: str, tokens: int) -> str:
    """Write about ``tokens`` tokens, 25 per line; return the path of a data-bin in ``folder``."""
    rng, root = random.Random(1), Path(folder)
    words, weights = zipf(TEXT_WORDS)
    lines = [" ".join(rng.choices(words, weights, k=24)) + "\n" for _ in range(tokens // 25 + 1)]
    (root / "text").write_text("".join(lines))
    write_dictionary(root / "dict.txt", words)
    text = [f"--trainpref={root / 'text'}", f"--srcdict={root / 'dict.txt'}"]
    preprocess("--only-source", *text, f"--destdir={root / 'bin'}")
    return str(root / "bin")


if __name__ == "__main__":
    print(write(sys.argv[1]))
