"""Tests of two runs on the same sentences, from their files of predictions."""

import itertools
import re

import numpy as np
import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import paired
from fairseq_casrnn.evaluation.paired import f1, paired_test, randomization, span_counts
from fairseq_casrnn.evaluation.prediction_files import (
    CLASSES,
    WORDS,
    as_lines,
    read_table,
    read_tags,
)

TAGGED = """Anna B-PER {}
sleeps O {}

New B-LOC B-LOC
York I-LOC {}

"""


def write(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_classes(tmp_path):
    """Five sentences that only the one has right, none that only the other has: 2 / 2 ** 5."""
    names = "".join(f"a\t{{}}\t0.5{end}" for end in "\n\n\n\n\n\n")
    ours = write(tmp_path / "ours", "test.predictions.tsv", names.format(*"aaaaab"))
    theirs = write(tmp_path / "theirs", "test.predictions.tsv", names.format(*"bbbbbb"))
    assert paired_test(ours, theirs, "test", "accuracy") == ("McNemar", 0.0625)
    assert paired_test(ours, theirs, "valid", "accuracy") is None
    write(theirs, "test.predictions.tsv", "a\ta\n")
    with pytest.raises(UserError, match=r"tsv is damaged: line 1 has 2 columns, not 3; evaluate"):
        paired_test(ours, theirs, "test", "accuracy")


def test_files_with_a_header(tmp_path):
    """As ``casrnn evaluate`` writes them, also against a recipe's."""
    header = "gold\tpredicted\tprobability\ttext\n"
    ours = write(tmp_path / "ours", "test.predictions.tsv", header + "a\ta\t0.5\tgold\n" * 5)
    theirs = write(tmp_path / "theirs", "test.predictions.tsv", "a\tb\t0.5\n" * 5)
    assert paired_test(ours, theirs, "test", "accuracy") == ("McNemar", 0.0625)
    sentences = TAGGED.format("B-PER", "O", "I-LOC").replace(" ", "\t")
    table = "word\tgold\tpredicted\tprobability\n\n" + re.sub(r"(.)\n", r"\1\t0.5\n", sentences)
    tagged = write(tmp_path / "tagged", "test.predictions.tsv", table)
    assert paired_test(ours, tagged, "test", "accuracy") is None
    recipe = write(
        tmp_path / "recipe", "test.predictions.txt", TAGGED.format("B-PER", "O", "I-LOC")
    )
    both = [
        read_tags(folder / name)
        for folder, name in ((tagged, "test.predictions.tsv"), (recipe, "test.predictions.txt"))
    ]
    assert both[0] == both[1]
    assert paired_test(tagged, recipe, "test", "f1") == ("randomization", 1.0)


def test_labels_that_a_spreadsheet_would_evaluate(tmp_path):
    rows = [("+1", "-1", "0.5"), ("'=", "@x", "1")]
    write(tmp_path, "test.predictions.tsv", as_lines([CLASSES, *rows]))
    table = read_table(tmp_path / "test.predictions.tsv")
    assert table.classes() == [row[:2] for row in rows]
    words = as_lines([WORDS, (), ("(", "-LRB-", "O", "0.5")])
    write(tmp_path, "test.predictions.tsv", words)
    assert read_tags(tmp_path / "test.predictions.tsv") == [(["-LRB-"], ["O"])]


def test_tags(tmp_path):
    right, wrong = TAGGED.format("B-PER", "O", "I-LOC"), TAGGED.format("O", "B-PER", "B-LOC")
    ours = write(tmp_path / "ours", "test.predictions.txt", right)
    theirs = write(tmp_path / "theirs", "test.predictions.txt", wrong)
    both = [read_tags(folder / "test.predictions.txt") for folder in (ours, theirs)]
    assert [span_counts(one, "f1").tolist() for one in both] == [
        [[1, 1, 1], [1, 1, 1]],
        [[0, 1, 1], [0, 2, 1]],
    ]
    assert span_counts(both[1], "accuracy").tolist() == [[0, 2, 2], [1, 2, 2]]
    # Of two sentences, half of the exchanges leave the greatest difference.
    test, p = paired_test(ours, theirs, "test", "f1")
    assert test == "randomization"
    assert p == pytest.approx(0.5, abs=0.02)
    assert paired_test(ours, ours, "test", "f1") == ("randomization", 1.0)
    write(theirs, "test.predictions.txt", TAGGED.format("O", "O", "O").replace("I-LOC", "O"))
    with pytest.raises(UserError, match="are of different sentences"):
        paired_test(ours, theirs, "test", "f1")


def test_randomization_is_that_of_all_exchanges():
    """Of eight sentences all 256 can be tried."""
    generator = np.random.default_rng(3)
    true = generator.integers(1, 5, 8)
    systems = []
    for quality in (0.9, 0.5):
        correct = generator.binomial(true, quality)
        systems.append(np.stack([correct, correct + generator.integers(0, 2, 8), true], -1))
    ours, theirs = systems
    observed = abs(f1(ours.sum(0)) - f1(theirs.sum(0)))
    found = []
    for swap in itertools.product([False, True], repeat=8):
        swap = np.array(swap)[:, None]
        one, other = np.where(swap, theirs, ours), np.where(swap, ours, theirs)
        found.append(abs(f1(one.sum(0)) - f1(other.sum(0))) >= observed - 1e-12)
    assert 0.01 < np.mean(found) < 0.2
    assert randomization(ours, theirs) == pytest.approx(np.mean(found), abs=0.01)


def test_p_does_not_depend_on_how_many_exchanges_are_drawn_at_a_time(monkeypatch):
    generator = np.random.default_rng(3)
    ours, theirs = (generator.integers(0, 5, (11, 3)) for _ in range(2))
    whole = randomization(ours, theirs)
    assert 0.01 < whole < 0.99
    monkeypatch.setattr(paired, "BLOCK", 1000)
    assert randomization(ours, theirs) == whole
