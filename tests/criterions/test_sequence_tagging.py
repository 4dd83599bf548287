"""A tagger's loss per word, and its scores over all batches."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

import fairseq_casrnn
from fairseq_casrnn.data.datasets import UNSEEN_TAG
from fairseq_casrnn.errors import UserError

fairseq_casrnn.register()

from fairseq_casrnn.criterions.sequence_tagging import (  # noqa: E402
    SequenceTaggingCriterion as Criterion,
)

CLASSES = ["O", "B-X", "I-X"]
O, B, I = range(3)
PAD = -1


class Model(torch.nn.Module):
    """Predicts the tags that it is given, with a loss of 6."""

    def __init__(self, best):
        super().__init__()
        self.found = best

    def forward(self, target):
        assert UNSEEN_TAG not in target
        self.target = target
        return None, torch.tensor(6.0)

    def best(self, emissions, lengths, constraints):
        assert constraints == "of the task"
        assert [len(row) for row in self.found] == lengths.tolist()
        return self.found


def sample(target):
    lengths = torch.tensor([sum(tag != PAD for tag in row) for row in target])
    return {
        "net_input": {},
        "target": torch.tensor(target),
        "lengths": lengths,
        "ntokens": int(lengths.sum()),
        "nsentences": len(target),
    }


def task(spans=True):
    return SimpleNamespace(
        tag_names=lambda row: ["I-<unk>" if tag == UNSEEN_TAG else CLASSES[tag] for tag in row],
        classes=CLASSES,
        characters=None,
        are_spans=spans,
        constraints="of the task",
        target_dictionary=None,
    )


def logged(target, best, spans=True, training=False):
    model = Model(best).train(training)
    loss, size, found = Criterion(task(spans))(model, sample(target))
    assert loss.item() == 6
    assert size == found["sample_size"] == found["ntokens"]
    return found


def test_counts_of_a_batch():
    """Words, correct words, whether spans count, and gold, predicted and correct spans."""
    found = logged([[B, I, O], [O, B, PAD], [PAD] * 3], [[B, I, B], [O, O], []])
    assert found["ntokens"] == 5
    assert found["nsentences"] == 3
    assert found["counts"].tolist() == [5, 3, 1, 2, 2, 1]
    assert "counts" not in logged([[B, I]], [[B, I]], training=True)
    assert logged([[B, I]], [[B, O]], spans=False)["counts"].tolist() == [2, 1, 0, 0, 0, 0]


def test_unseen_tags():
    """They are spans that cannot be found, and their sentence has no loss."""
    model = Model([[B, I, O], [O, B]]).eval()
    batch = sample([[B, I, O], [UNSEEN_TAG, B, PAD]])
    _, size, found = Criterion(task())(model, batch)
    assert (size, found["sample_size"], found["ntokens"]) == (3, 3, 5)
    assert model.target.tolist() == [[B, I, O], [PAD] * 3]
    assert found["counts"].tolist() == [5, 4, 1, 3, 2, 2]


def test_scores_are_over_all_words():
    """12 nats for 8 words; 5 of 8 tags are right, and 2 of 3 gold and 2 of 4 predicted spans."""
    first = logged([[B, I, O], [O, B, PAD]], [[B, I, B], [O, O]])
    second = logged([[B, O, O]], [[B, B, O]])
    together = []
    for batches in ([[first], [second]], [[first, second]]):
        with metrics.aggregate(new_root=True) as found:
            for logs in batches:
                Criterion.reduce_metrics(logs)
        together.append(found.get_smoothed_values())
    for values in together:
        assert values["loss"] == pytest.approx(12 / 8 / math.log(2), abs=1e-3)
        assert values["accuracy"] == 62.5
        assert values["precision"] == 50
        assert values["recall"] == pytest.approx(66.67)
        assert values["f1"] == pytest.approx(57.14)


def test_parts_of_speech_have_no_f1():
    with metrics.aggregate(new_root=True) as found:
        Criterion.reduce_metrics([logged([[O, B]], [[O, O]], spans=False)])
        Criterion.reduce_metrics([{"loss": torch.tensor(0.0), "sample_size": 0}])
    values = found.get_smoothed_values()
    assert values["accuracy"] == 50
    assert "f1" not in values


def test_tasks_without_tags():
    with pytest.raises(UserError, match="needs --task sequence_tagging"):
        Criterion(SimpleNamespace(classes=CLASSES, pairs=False, target_dictionary=None))
