"""Known losses with class weights and L2, and the logged metrics."""

import math
from types import SimpleNamespace

import numpy
import pytest
import torch
from fairseq.logging import metrics

import fairseq_casrnn
from fairseq_casrnn.errors import UserError

fairseq_casrnn.register()

from fairseq_casrnn.criterions.sentence_classification import (  # noqa: E402
    SentenceClassificationCriterion as Criterion,
)
from fairseq_casrnn.criterions.sentence_classification import balanced  # noqa: E402

LOGITS = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
TARGET = torch.tensor([0, 1, 1])
LOSSES = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(-1)), math.log(1 + math.exp(3))]
SAMPLE = {"net_input": {}, "target": TARGET, "ntokens": 9}


class Model(torch.nn.Module):
    """A model whose logits are always the same."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(3, 2)
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0]]))
        self.bias = torch.nn.Parameter(torch.tensor([5.0, 6.0]))
        self.frozen = torch.nn.Parameter(torch.tensor([[7.0]]), requires_grad=False)

    def forward(self):
        return LOGITS


def task(labels=(0, 0, 0, 1)):
    train = SimpleNamespace(labels=torch.tensor(labels).numpy())
    return SimpleNamespace(
        classes=["no", "yes"], pairs=False, training_set=train, target_dictionary=None
    )


def loss_of(model=None, **options):
    loss, size, logged = Criterion(task(), **options)(model or Model(), SAMPLE)
    assert size == 3
    return loss.item(), logged


def test_loss_is_the_sum_over_the_batch():
    loss, logged = loss_of()
    assert loss == pytest.approx(sum(LOSSES))
    assert logged["confusion"].tolist() == [[1, 0], [1, 1]]


def test_class_weights():
    weighted = LOSSES[0] + 3 * LOSSES[1] + 3 * LOSSES[2]
    assert loss_of(class_weights="yes:3")[0] == pytest.approx(weighted)
    # Three of four training sentences are "no", so the weights are 4 / (2 · 3) and 4 / (2 · 1).
    balanced = 2 / 3 * LOSSES[0] + 2 * LOSSES[1] + 2 * LOSSES[2]
    assert loss_of(class_weights="balanced")[0] == pytest.approx(balanced)


def test_balanced_weights_without_training_data():
    """A checkpoint can be validated without training data."""
    without = task()
    without.training_set = None
    loss, _, _ = Criterion(without, class_weights="balanced")(Model(), SAMPLE)
    assert loss.item() == pytest.approx(sum(LOSSES))


def test_balanced_weights_ignore_other_corpora():
    """Corpora that are mixed in do not count; a class that is missing has weight 0."""
    mix = SimpleNamespace(base=SimpleNamespace(labels=numpy.array([0, 2, 0])))
    assert balanced(mix, 3).tolist() == pytest.approx([3 / (3 * 2), 0, 3 / (3 * 1)])


def test_half_precision_logits_are_summed_in_float32():
    model = Model()
    model.forward = lambda: LOGITS.bfloat16()
    loss, logged = loss_of(model)
    assert loss == pytest.approx(sum(LOSSES), rel=1e-6)
    assert logged["loss"].dtype == torch.float32


def test_l2_only_in_training():
    """L2/2 · (1 + 4) per sentence: neither embeddings, biases nor frozen weights count."""
    loss, logged = loss_of(l2=0.1)
    assert loss == pytest.approx(sum(LOSSES) + 3 * 0.05 * 5)
    assert float(logged["loss"]) == pytest.approx(sum(LOSSES))
    assert loss_of(Model().eval(), l2=0.1)[0] == pytest.approx(sum(LOSSES))


def test_l2_of_the_embeddings():
    model = Model()
    squares = float(model.embed_tokens.weight.square().sum())
    loss, _ = loss_of(model, l2_embeddings=0.2)
    assert loss == pytest.approx(sum(LOSSES) + 3 * 0.1 * squares)


def test_logged_metrics():
    logged = loss_of()[1]
    with metrics.aggregate(new_root=True) as found:
        Criterion.reduce_metrics([logged])
        Criterion.reduce_metrics([logged, logged])
    values = found.get_smoothed_values()
    assert values["loss"] == pytest.approx(sum(LOSSES) / 3 / math.log(2), abs=1e-3)
    assert values["accuracy"] == pytest.approx(66.67)
    assert values["macro_f1"] == pytest.approx(66.67)
    assert found["_confusion"].sum.tolist() == [[3, 0], [3, 3]]


def test_unseen_classes():
    """They count as errors, but not in the loss."""
    sample = {**SAMPLE, "target": torch.tensor([0, 1, -1])}
    loss, size, logged = Criterion(task())(Model().eval(), sample)
    assert (size, logged["sample_size"]) == (2, 2)
    assert loss.item() == pytest.approx(sum(LOSSES[:2]))
    with metrics.aggregate(new_root=True) as found:
        Criterion.reduce_metrics([logged])
    values = found.get_smoothed_values()
    assert values["loss"] == pytest.approx(sum(LOSSES[:2]) / 2 / math.log(2), abs=1e-3)
    assert values["accuracy"] == pytest.approx(66.67)
    assert values["macro_f1"] == pytest.approx(100 * (2 / 3 + 1) / 3, abs=0.01)
    sample["target"] = torch.tensor([-1, -1, -1])
    none = Criterion(task())(Model().eval(), sample)[2]
    with metrics.aggregate(new_root=True) as found:
        Criterion.reduce_metrics([none])
    assert found.get_smoothed_values()["accuracy"] == 0


def test_loss_is_averaged_over_sentences():
    """The batches have 2 nats for one sentence and 1 nat for three."""
    counts = torch.tensor([[1, 0], [0, 0]])
    with metrics.aggregate(new_root=True) as found:
        for nats, count in ((2.0, 1), (1.0, 3)):
            log = {"loss": torch.tensor(nats), "sample_size": count, "confusion": count * counts}
            Criterion.reduce_metrics([log])
    assert found.get_smoothed_values()["loss"] == pytest.approx(3 / 4 / math.log(2), abs=1e-3)


@pytest.mark.parametrize("weights", ["maybe:1", "yes", "yes:-1", "yes:x", "yes:nan", "yes:inf", ""])
def test_invalid_class_weights(weights):
    with pytest.raises(UserError, match=r"--class-weights has .* the classes no, yes"):
        Criterion(task(), class_weights=weights)


def test_invalid_options():
    with pytest.raises(UserError, match="--class-weights has no twice; leave one of them out"):
        Criterion(task(), class_weights="no:1,yes:2,no:3")
    with pytest.raises(UserError, match="--class-weights are all 0; give at least one class"):
        Criterion(task(), class_weights="no:0,yes:0")
    for option in ("l2", "l2_embeddings"):
        with pytest.raises(UserError, match="is nan; it must be a number, at least 0"):
            Criterion(task(), **{option: float("nan")})
    with pytest.raises(UserError, match=r"--l2 is -1"):
        Criterion(task(), l2=-1)
    with pytest.raises(UserError, match="needs --task sentence_classification"):
        Criterion(
            SimpleNamespace(target_dictionary=None, classes=["O", "B-X"])
        )  # the task of a tagger
