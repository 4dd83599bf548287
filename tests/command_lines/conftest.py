"""One generated corpus and one tiny model of each cell for all tests of a process."""

import functools
import random
from pathlib import Path

import pytest

from .programs import fairseq, train

WORDS = {f"{a}{b}": f"{b}{a}".upper() for a in "bdfg" for b in "aeo"}


def write_corpus(folder: Path) -> None:
    """A text without sense, and its "translation" word by word, last word first."""
    rng = random.Random(1)
    for split, size in (("train", 60), ("valid", 8), ("test", 9)):
        sentences = [rng.choices(list(WORDS), k=rng.randint(1, 7)) for _ in range(size)]
        translations = [[WORDS[word] for word in reversed(words)] for words in sentences]
        for suffix, lines in (("xx", sentences), ("yy", translations)):
            text = "".join(" ".join(words) + "\n" for words in lines)
            (folder / f"{split}.{suffix}").write_text(text)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A folder with the text of train, valid and test in the "languages" xx and yy."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def data(corpus) -> Path:
    """The corpus as fairseq-preprocess leaves it."""
    prefixes = [part for s in ("train", "valid", "test") for part in (f"--{s}pref", corpus / s)]
    fairseq("preprocess", "-s", "xx", "-t", "yy", *prefixes, "--destdir", corpus / "bin")
    return corpus / "bin"


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """``trained(cell)``: folder of a tiny model's checkpoints after eight epochs."""

    @functools.cache
    def folder(cell):
        path = tmp_path_factory.mktemp(cell)
        train(data, path, f"{cell}_tiny", "--lr", "0.02", "--dropout", "0.1", epochs=8)
        return path

    return folder
