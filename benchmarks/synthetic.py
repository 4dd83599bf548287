"""Random sentence pairs of the lengths and vocabularies of Multi30k, binarised for fairseq."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import fairseq_cli.preprocess
from fairseq import options

WORDS = {"de": 7068, "en": 5204}  # a dictionary adds four symbols


def write(folder: str, sentences: int = 4000, seed: int = 1) -> str:
    """A data-bin with a training set, a tenth of it for validation, in ``folder``; its path."""
    rng, root = random.Random(seed), Path(folder)
    lengths = [max(4, round(rng.gauss(14, 4))) for _ in range(sentences)]
    for language, count in WORDS.items():
        words = [f"w{number}" for number in range(count)]
        weights = [1 / (rank + 3) for rank in range(count)]  # Zipf
        lines = [" ".join(rng.choices(words, weights, k=length)) for length in lengths]
        (root / f"train.{language}").write_text("".join(line + "\n" for line in lines))
        few = "".join(line + "\n" for line in lines[: sentences // 10])
        (root / f"valid.{language}").write_text(few)
        (root / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in words))
    arguments = ["--source-lang=de", "--target-lang=en", f"--trainpref={root / 'train'}"]
    arguments += [f"--validpref={root / 'valid'}"]
    arguments += [f"--srcdict={root / 'dict.de.txt'}", f"--tgtdict={root / 'dict.en.txt'}"]
    parser = options.get_preprocessing_parser()
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        fairseq_cli.preprocess.main(parser.parse_args([*arguments, f"--destdir={root / 'bin'}"]))
    finally:
        sys.stdout = out
    return str(root / "bin")
