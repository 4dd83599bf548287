"""Scores of tags: counts can be added, and spans are those of conlleval."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score

from fairseq_casrnn.evaluation import evaluate_tagger
from fairseq_casrnn.evaluation.tags import COUNTS, counts, report, scores

TRUTH = [["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "B-PER"], []]
FOUND = [["B-PER", "I-PER", "O", "B-PER"], ["B-PER", "I-PER"], []]


def total(truth, found, marked=True):
    return dict(zip(COUNTS, counts(truth, found, marked), strict=True))


def test_by_hand():
    """One of four spans is found, and three are predicted: one has a wrong type, two are merged."""
    found = total(TRUTH, FOUND)
    assert found == {
        "words": 6, "right": 4, "marked": 1, "true": 4, "predicted": 3, "correct": 1,
    }  # fmt: skip
    assert scores(found) == pytest.approx(
        {"accuracy": 100 * 4 / 6, "precision": 100 / 3, "recall": 25, "f1": 200 / 7}
    )


def test_accuracy_is_that_of_iob2_tags():
    """The letters E and S, which mark the ends of spans, do not affect accuracy."""
    truth, found = [["S-PER", "B-LOC", "E-LOC", "O"]], [["B-PER", "B-LOC", "I-LOC", "I-LOC"]]
    assert total(truth, found)["right"] == total(found, truth)["right"] == 3
    assert total(truth, found, marked=False)["right"] == 1
    assert total(truth, found)["correct"] == 1


class OneSentence:
    words = (torch.tensor([0, 1, 0, 1, 2]),)

    def __len__(self):
        return 1

    def tags(self, index):
        return torch.tensor([1, 2, 3, 0])


def test_accuracy_agrees_with_the_file_of_predictions(monkeypatch, tmp_path):
    """Tags are converted to IOB2, even if the model does not close a span."""
    hub = SimpleNamespace(
        classes=["O", "B-PER", "E-PER", "S-PER"],
        is_constrained=False,
        task=SimpleNamespace(
            are_spans=True,
            dictionary=["a\u00a0a", "b", "</s>"],
            read=lambda subset: OneSentence(),
            unseen={},
            tag_names=lambda row: [["O", "B-PER", "E-PER", "S-PER"][tag] for tag in row],
        ),
        of_dataset=lambda dataset, size: [(["B-PER", "E-PER", "B-PER", "B-PER"], 0.25)],
    )
    monkeypatch.setattr(evaluate_tagger, "load_hub", lambda *_: hub)
    found = evaluate_tagger.tag(tmp_path, tmp_path, "test")
    assert found["rows"] == [
        [("a_a", "B-PER", "B-PER"), ("b", "I-PER", "I-PER"), ("a_a", "B-PER", "B-PER"),
         ("b", "O", "B-PER")]
    ]  # fmt: skip
    assert found["confidence"] == [0.25]
    assert found["accuracy"] == 75
    assert (found["precision"], found["recall"]) == (66.67, 100)


def test_parts_of_speech_have_no_spans():
    assert scores(total([["NN", "O"]], [["NN", "VB"]], marked=False)) == {"accuracy": 50}
    assert scores(total([[]], [[]], marked=False)) == {"accuracy": 0}


TAGS = st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])
PAIRS = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=7), min_size=1, max_size=4)


@settings(deadline=None)
@given(PAIRS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_scores_equal_those_of_seqeval(pairs):
    """Counts of single sentences, added up, give the scores of seqeval for random tags."""
    truth = [[a for a, _ in row] for row in pairs]
    found = [[b for _, b in row] for row in pairs]
    parts = [counts([a], [b], True) for a, b in zip(truth, found, strict=True)]
    added = {name: sum(part[i] for part in parts) for i, name in enumerate(COUNTS)}
    ours = scores(added)
    for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert ours[name] == pytest.approx(100 * score(truth, found, zero_division=0))


def test_bioes_is_scored_by_its_spans():
    truth = [["B-PER", "E-PER", "S-PER"]]
    assert scores(total(truth, truth))["f1"] == 100
    assert scores(total(truth, [["B-PER", "I-PER", "S-PER"]]))["f1"] == 100  # the same two spans
    assert scores(total(truth, [["B-PER", "I-PER", "E-PER"]]))["f1"] == 0


def test_report():
    lines = report(TRUTH, FOUND).split("\n")
    assert lines[2].split() == ["LOC", "0.0000", "0.0000", "0.0000", "1"]
    assert lines[3].split() == ["PER", "0.3333", "0.3333", "0.3333", "3"]
