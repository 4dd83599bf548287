"""The compiled cross entropy beside fairseq's own."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_casrnn.criterions.fused_cross_entropy import (
    FusedCrossEntropy,
    FusedLabelSmoothedCrossEntropy,
    fits,
    smoothed_cross_entropy,
)
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.head import VocabularyHead
from fairseq_casrnn.recurrence import cpp

pytestmark = pytest.mark.skipif(cpp.extension()[0] is None, reason="needs the compiled extension")
PAD = 1


def example(classes, dtype, scale=3.0):
    generator = torch.Generator().manual_seed(classes)
    logits = scale * torch.randn(3, 7, classes, generator=generator, dtype=torch.double)
    target = torch.randint(0, classes, (3, 7), generator=generator)
    target[0, :3] = PAD
    target[2, 6] = classes - 1
    return logits.to(dtype).requires_grad_(), target


def fairseqs(logits, target, smoothing):
    lprobs = torch.log_softmax(logits.double(), -1)
    return label_smoothed_nll_loss(lprobs, target, smoothing, ignore_index=PAD)


@pytest.mark.parametrize("classes", [2, 3, 8, 16, 37, 100, 5208])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_agrees_with_fairseqs(classes, smoothing, dtype):
    logits, target = example(classes, dtype)
    loss, plain = smoothed_cross_entropy(logits, target, smoothing, PAD)
    (grad,) = torch.autograd.grad(2.5 * loss, logits)
    expected, nll = fairseqs(logits, target, smoothing)
    (expected_grad,) = torch.autograd.grad(2.5 * expected, logits)
    close = (
        {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-6, "atol": 1e-6}
    )
    torch.testing.assert_close(loss.double(), expected.double(), **close)
    torch.testing.assert_close(plain.double(), nll.double(), **close)
    torch.testing.assert_close(grad.double(), expected_grad.double(), **close)
    assert not plain.requires_grad
    assert (grad[target == PAD] == 0).all()


def test_a_class_that_is_ruled_out():
    logits, target = example(20, torch.float32)
    with torch.no_grad():
        logits[..., 4], target[target == 4] = -math.inf, 5
    loss, _ = smoothed_cross_entropy(logits, target, 0.0, PAD)
    (grad,) = torch.autograd.grad(loss, logits)
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
    assert grad.isfinite().all()
    assert (grad[..., 4].abs() < 1e-30).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_far_apart(dtype):
    logits = torch.full((2, 33), -1000.0, dtype=dtype)
    logits[0, 4], logits[1, 32] = 1000.0, 30.0
    logits.requires_grad_()
    loss, _ = smoothed_cross_entropy(logits, torch.tensor([4, 0]), 0.0, PAD)
    assert loss.item() == pytest.approx(1030, rel=1e-6)
    (grad,) = torch.autograd.grad(loss, logits)
    expected = torch.zeros(2, 33, dtype=dtype)
    expected[1, 32], expected[1, 0] = 1, -1
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-30)


def test_nothing_but_padding_and_not_a_number():
    logits = torch.randn(4, 9, requires_grad=True)
    loss, plain = smoothed_cross_entropy(logits, torch.full((4,), PAD), 0.1, PAD)
    assert loss.item() == plain.item() == 0
    assert torch.equal(torch.autograd.grad(loss, logits)[0], torch.zeros(4, 9))
    with torch.no_grad():
        logits[2, 3] = math.nan
    loss, _ = smoothed_cross_entropy(logits, torch.full((4,), 5), 0.1, PAD)
    assert math.isnan(loss.item())


def test_second_derivatives_are_refused():
    """Also where the incoming gradient is a constant, which once_differentiable lets pass."""
    logits, target = example(5, torch.float64)
    loss, _ = smoothed_cross_entropy(logits, target, 0.1, PAD)
    with pytest.raises(UserError, match="fused criterions have no second derivatives"):
        torch.autograd.grad(loss, logits, create_graph=True)


def test_a_second_backward():
    """As torch's own: an error, or with retain_graph the same again."""
    logits, target = example(5, torch.float64)
    loss, _ = smoothed_cross_entropy(logits, target, 0.1, PAD)
    first, second = (torch.autograd.grad(loss, logits, retain_graph=keep)[0] for keep in (1, 0))
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_targets_out_of_range_are_refused():
    with pytest.raises(RuntimeError, match="a target is not among the 9 classes"):
        smoothed_cross_entropy(torch.randn(2, 9), torch.tensor([3, 9]), 0.0, PAD)


def test_repeated_and_strided():
    logits, target = example(21, torch.float64)
    turned = logits.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    loss, _ = smoothed_cross_entropy(turned, target, 0.2, PAD)
    (first,) = torch.autograd.grad(loss, turned, retain_graph=True)
    kept = first.clone()
    first.zero_()
    (second,) = torch.autograd.grad(3 * loss, turned)
    expected, _ = fairseqs(logits, target, 0.2)
    torch.testing.assert_close(kept, torch.autograd.grad(expected, logits)[0])
    torch.testing.assert_close(second, 3 * kept)


class Head(VocabularyHead):
    adaptive_softmax = None


@pytest.mark.parametrize("smoothing", [None, 0.1])
def test_criterions_fall_back(smoothing):
    """What the compiled loss does not serve gives fairseq's numbers, too."""
    logits, target = example(12, torch.float32)
    model = SimpleNamespace(
        decoder=Head(),
        get_targets=lambda sample, output: sample["target"],
        get_normalized_probs=lambda output, log_probs: torch.log_softmax(output[0], -1),
    )
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD))
    if smoothing is None:
        criterion = FusedCrossEntropy(task, False)
    else:
        criterion = FusedLabelSmoothedCrossEntropy(task, False, smoothing)
    output, sample = (logits, {}), {"target": target}
    assert fits(model, output, True)
    assert not fits(model, output, False)
    assert not fits(model, (logits.bfloat16(), {}), True)
    fused = criterion.compute_loss(model, output, sample)
    for reason in ("not ours", "adaptive"):
        if reason == "not ours":
            model.decoder = SimpleNamespace(adaptive_softmax=None)
        else:
            model.decoder = Head()
            model.decoder.adaptive_softmax = object()
        assert not fits(model, output, True)
        for a, b in zip(fused, criterion.compute_loss(model, output, sample), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    tokens = criterion.compute_loss(model, output, sample, reduce=False)[0]
    torch.testing.assert_close(tokens.sum(), fused[0], rtol=1e-6, atol=1e-6)
