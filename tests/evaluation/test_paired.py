"""Significance tests of two runs on the same sentences, from their files of predictions."""

import itertools
import re

import numpy as np
import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import paired
from fairseq_casrnn.evaluation.bleu import detokenized_metric, tokenized_metric
from fairseq_casrnn.evaluation.paired import (
    bleu_randomization,
    compare_with_baseline,
    f1,
    randomization,
    span_counts,
)
from fairseq_casrnn.evaluation.prediction_files import (
    CLASSES,
    TRANSLATIONS,
    WORDS,
    as_lines,
    predictions_of,
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
    """Five sentences are right in one run only, and none in the other only: 2 / 2 ** 5."""
    names = "".join(f"a\t{{}}\t0.5{end}" for end in "\n\n\n\n\n\n")
    ours = write(tmp_path / "ours", "test.predictions.tsv", names.format(*"aaaaab"))
    theirs = write(tmp_path / "theirs", "test.predictions.tsv", names.format(*"bbbbbb"))
    assert compare_with_baseline(ours, theirs, "test", "accuracy")[:2] == ("McNemar", 0.0625)
    assert compare_with_baseline(ours, theirs, "valid", "accuracy") is None
    write(theirs, "test.predictions.tsv", "a\ta\n")
    with pytest.raises(UserError, match=r"tsv is damaged: line 1 has 2 columns, not 3; evaluate"):
        compare_with_baseline(ours, theirs, "test", "accuracy")


def test_files_of_earlier_versions(tmp_path):
    """Older versions wrote classes without a header, and tags for conlleval."""
    header = "gold\tpredicted\tprobability\ttext\n"
    ours = write(tmp_path / "ours", "test.predictions.tsv", header + "a\ta\t0.5\tgold\n" * 5)
    theirs = write(tmp_path / "theirs", "test.predictions.tsv", "a\tb\t0.5\n" * 5)
    assert compare_with_baseline(ours, theirs, "test", "accuracy")[:2] == ("McNemar", 0.0625)
    sentences = TAGGED.format("B-PER", "O", "I-LOC").replace(" ", "\t")
    table = "word\tgold\tpredicted\tprobability\n\n" + re.sub(r"(.)\n", r"\1\t0.5\n", sentences)
    tagged = write(tmp_path / "tagged", "test.predictions.tsv", table)
    assert compare_with_baseline(ours, tagged, "test", "accuracy") is None
    recipe = write(
        tmp_path / "recipe", "test.predictions.txt", TAGGED.format("B-PER", "O", "I-LOC")
    )
    both = [predictions_of(folder, "test").pairs() for folder in (tagged, recipe)]
    assert both[0] == both[1]
    write(tagged, "test.predictions.txt", TAGGED.format("O", "O", "O"))
    assert predictions_of(tagged, "test").pairs() == both[0]
    assert compare_with_baseline(tagged, recipe, "test", "f1")[:2] == ("randomization", 1.0)


def test_labels_that_are_escaped_for_spreadsheets(tmp_path):
    rows = [("+1", "-1", "0.5"), ("'=", "@x", "1")]
    write(tmp_path, "test.predictions.tsv", as_lines([CLASSES, *rows]))
    assert predictions_of(tmp_path, "test").pairs() == [row[:2] for row in rows]
    words = as_lines([WORDS, (), ("(", "-LRB-", "O", "0.5")])
    write(tmp_path, "test.predictions.tsv", words)
    assert predictions_of(tmp_path, "test").pairs() == [(["-LRB-"], ["O"])]


def test_empty_predictions(tmp_path):
    write(tmp_path, "test.predictions.tsv", "")
    with pytest.raises(UserError, match=r"test\.predictions\.tsv is empty; run the evaluation"):
        predictions_of(tmp_path, "test")


def test_tags(tmp_path):
    right, wrong = TAGGED.format("B-PER", "O", "I-LOC"), TAGGED.format("O", "B-PER", "B-LOC")
    ours = write(tmp_path / "ours", "test.predictions.txt", right)
    theirs = write(tmp_path / "theirs", "test.predictions.txt", wrong)
    both = [predictions_of(folder, "test").pairs() for folder in (ours, theirs)]
    assert [span_counts(one, "f1").tolist() for one in both] == [
        [[1, 1, 1], [1, 1, 1]],
        [[0, 1, 1], [0, 2, 1]],
    ]
    assert span_counts(both[1], "accuracy").tolist() == [[0, 2, 2], [1, 2, 2]]
    # of two sentences, half of the exchanges have the greatest difference
    test, p, text = compare_with_baseline(ours, theirs, "test", "f1")
    assert test == "randomization"
    assert text == f"p = {p:.2g} (approximate randomization of sentences, two-sided)"
    assert p == pytest.approx(0.5, abs=0.02)
    assert compare_with_baseline(ours, ours, "test", "f1")[:2] == ("randomization", 1.0)
    write(theirs, "test.predictions.txt", TAGGED.format("O", "O", "O").replace("I-LOC", "O"))
    with pytest.raises(UserError, match=f"test in {ours} and {theirs} are of different sentences"):
        compare_with_baseline(ours, theirs, "test", "f1")
    write(theirs, "test.predictions.txt", "Anna B-PER\n")
    with pytest.raises(UserError, match=r"txt is damaged: line 1 has 2 columns, not 3; evaluate"):
        compare_with_baseline(ours, theirs, "test", "f1")


def test_translations(tmp_path):
    """Case is ignored, since the models do not see it."""
    texts = [[f"s{n} a b c d {last}" for n in range(9)] for last in "xyz"]
    one, other, perfect = (
        write(tmp_path / name, "test.predictions.tsv",
              as_lines([TRANSLATIONS, *zip(texts[0], texts[2], found, strict=True)]))
        for name, found in
        zip("abc", (texts[0], texts[1], [text.upper() for text in texts[2]]), strict=True)
    )  # fmt: skip
    assert compare_with_baseline(one, other, "test", "bleu")[:2] == ("randomization", 1.0)
    found = compare_with_baseline(perfect, one, "test", "bleu")
    text = f"p = {found.p:.2g} (sacreBLEU, approximate randomization of sentences, two-sided)"
    assert found == ("randomization", found.p, text)
    assert found.p < 0.01


def test_no_difference_is_not_significant():
    metric, lines = tokenized_metric(), ["a b c d e", "f g h i"]
    assert bleu_randomization(lines, lines, lines, metric) == 1.0
    one, other, references = ([f"s{n} a b c d {last}" for n in range(9)] for last in "xyz")
    assert bleu_randomization(one, other, references, metric) == 1.0
    assert bleu_randomization(one, references, references, metric) < 0.01


@pytest.mark.parametrize("metric", [tokenized_metric(), detokenized_metric(["a"])])
def test_p_if_few_translations_differ(metric):
    """Of n better translations, 2 of the 2 ** n exchanges have the greatest difference."""
    references = [f"the cat s{n} sat on the mat" for n in range(20)]
    before = [line.replace("mat", "dog") for line in references]
    for different, p in ((1, 1), (2, 0.5), (4, 0.125)):
        after = references[:different] + before[different:]
        found = [bleu_randomization(*pair, references, metric)
                 for pair in ((before, after), (after, before))]  # fmt: skip
        assert found == pytest.approx([p, p], abs=0.01)


def test_randomization_equals_enumeration_of_all_exchanges():
    """With eight sentences, all 256 exchanges can be enumerated."""
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


def test_p_does_not_depend_on_the_block_size(monkeypatch):
    generator = np.random.default_rng(3)
    ours, theirs = (generator.integers(0, 5, (11, 3)) for _ in range(2))
    whole = randomization(ours, theirs)
    assert 0.01 < whole < 0.99
    monkeypatch.setattr(paired, "BLOCK", 1000)
    assert randomization(ours, theirs) == whole
