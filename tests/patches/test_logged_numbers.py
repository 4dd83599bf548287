"""What fairseq's trainer logs of tensors on a GPU, which tensors on the CPU imitate."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics
from fairseq.trainer import Trainer

from fairseq_casrnn.criterions.fused_cross_entropy import FusedLabelSmoothedCrossEntropy
from fairseq_casrnn.patches import logged_numbers
from fairseq_casrnn.patches.logged_numbers import to_host


@pytest.fixture
def copies(monkeypatch):
    """Records the shapes of the tensors copied from the GPU."""
    shapes, cpu = [], torch.Tensor.cpu

    def spy(self):
        shapes.append(tuple(self.shape))
        return cpu(self)

    monkeypatch.setattr(logged_numbers, "is_on_gpu", torch.is_tensor)
    monkeypatch.setattr(torch.Tensor, "cpu", spy)
    return shapes


def test_tensors_of_equal_shape_and_dtype_are_copied_together(copies):
    values = [torch.tensor(1.5), 3, torch.tensor([2.0, 3.0]), torch.tensor(4), None]
    values += [torch.tensor(0.1), torch.tensor([5.0, 6.0]), 0.25]
    found = to_host(values)
    assert copies == [(2,), (2, 2), ()]
    for ours, theirs in zip(found, values, strict=True):
        if torch.is_tensor(theirs):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)
        else:
            assert ours is theirs


def trainer(clip_norm: float):
    """Return an object with the parts of a trainer that logging needs."""
    task = SimpleNamespace(reduce_metrics=lambda logs, criterion: criterion.reduce_metrics(logs))
    self = SimpleNamespace(task=task, get_criterion=lambda: FusedLabelSmoothedCrossEntropy)
    self.cfg = SimpleNamespace(optimization=SimpleNamespace(clip_norm=clip_norm))
    self.optimizer = SimpleNamespace(clip_grad_norm=lambda *args, **options: torch.tensor(3.25))
    self.tpu = self.is_fsdp = False
    return self


def logged(clip_norm):
    """Return what fairseq logs of two batches, rounded as it does."""
    logs = [
        {
            "loss": torch.tensor(9.7 + k),
            "nll_loss": torch.tensor(8.1),
            "ntokens": 3,
            "nsentences": 1,
        }
        for k in range(2)
    ]
    own = trainer(clip_norm)
    with metrics.aggregate(new_root=True) as meters:
        norm = Trainer.clip_grad_norm(own, clip_norm)
        result = Trainer._reduce_and_log_stats(own, logs, 6.0, norm)
    return result, meters.get_smoothed_values(), logs


@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_the_same_numbers_are_logged(clip_norm, request):
    *expected, _ = logged(clip_norm)
    copies = request.getfixturevalue("copies")
    *found, logs = logged(clip_norm)
    for key in ("wps", "ups"):
        for numbers in (*expected, *found):
            numbers.pop(key, None)
    assert found == expected
    assert {"loss", "nll_loss", "ppl", "gnorm"} <= set(found[1])
    # First the norm, then both losses of both batches together with the norm.
    assert copies == [(), (5,)]
    assert list(logs[0]) == ["loss", "nll_loss", "ntokens", "nsentences"]


def test_nothing_to_log(copies):
    """This happens after an update that was skipped."""
    seen = []
    logged_numbers.reduce_and_log_stats(lambda *args: seen.append(args), None, None, 1.0)
    logged_numbers.reduce_and_log_stats(lambda *args: seen.append(args), None, [], 1.0)
    assert seen == [(None, None, 1.0, None), (None, [], 1.0, None)]
    assert copies == []
