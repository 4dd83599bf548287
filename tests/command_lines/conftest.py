"""One generated corpus and one tiny model of each cell for all tests of a process."""

import os
import random
from pathlib import Path

import pytest
from filelock import FileLock

from .programs import fairseq, train

WORDS = {f"{a}{b}": f"{b}{a}".upper() for a in "bdfg" for b in "aeo"}


def write_corpus(folder: Path) -> None:
    """Write random sentences and their "translation": word by word, in reverse order."""
    rng = random.Random(1)
    for split, size in (("train", 60), ("valid", 8), ("test", 9)):
        sentences = [rng.choices(list(WORDS), k=rng.randint(1, 7)) for _ in range(size)]
        translations = [[WORDS[word] for word in reversed(words)] for words in sentences]
        for suffix, lines in (("xx", sentences), ("yy", translations)):
            text = "".join(" ".join(words) + "\n" for words in lines)
            (folder / f"{split}.{suffix}").write_text(text)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """``shared(name, make)`` returns a folder, which ``make`` fills once for all processes."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def folder(name, make):
        path, part = root / name, root / f"{name}.part"
        with FileLock(root / f"{name}.lock"):
            if not path.exists():
                part.mkdir()
                make(part)
                part.rename(path)
        return path

    return folder


@pytest.fixture(scope="session")
def corpus(shared) -> Path:
    """A folder with the texts of train, valid and test in the "languages" xx and yy."""
    return shared("corpus", write_corpus)


@pytest.fixture(scope="session")
def data(shared, corpus) -> Path:
    """The corpus, binarised by fairseq-preprocess."""
    prefixes = [part for s in ("train", "valid", "test") for part in (f"--{s}pref", corpus / s)]

    def preprocess(folder):
        fairseq("preprocess", "-s", "xx", "-t", "yy", *prefixes, "--destdir", folder)

    return shared("bin", preprocess)


@pytest.fixture(scope="session")
def trained(data, shared):
    """``trained(cell)`` returns a folder with the checkpoints of a tiny model after ten epochs."""
    options = ["--lr", "0.03", "--dropout", "0"]
    return lambda cell: shared(
        cell, lambda path: train(data, path, f"{cell}_tiny", *options, epochs=10)
    )
