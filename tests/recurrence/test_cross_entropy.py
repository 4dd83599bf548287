"""The fused cross entropy, which stores no table of logits, compared with fairseq's."""

import contextlib
import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from helpers import rand, three_threads
from torch._subclasses import FakeTensorMode

from fairseq_casrnn import recurrence
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recurrence import cpp
from fairseq_casrnn.recurrence.cross_entropy import can_fuse, cross_entropy
from fairseq_casrnn.recurrence.inputs import LossSpec

pytestmark = pytest.mark.skipif("cpp" not in recurrence.installed(), reason="cpp is not compiled")
PAD = 1
DOUBLE = {"rtol": 1e-12, "atol": 1e-12}
SINGLE = {"rtol": 2e-6, "atol": 1e-5}  # gradients are sums over up to 5208 classes


def example(rows, classes, dtype=torch.float64, features=5, scale=3.0):
    """Return x (2, rows, E), weight, bias, and a target in which every third word is padding."""
    x = rand(2, rows, features, dtype=torch.double)
    weight = scale * rand(classes, features, seed=1, dtype=torch.double)
    bias = rand(classes, seed=2, dtype=torch.double)
    generator = torch.Generator().manual_seed(classes)
    target = torch.randint(0, classes, (2, rows), generator=generator)
    target[:, ::3] = PAD
    target[1, -1] = classes - 1
    return [t.to(dtype).requires_grad_() for t in (x, weight, bias)], target


def fairseq_loss(inputs, target, smoothing):
    lprobs = torch.log_softmax(torch.nn.functional.linear(*inputs), -1)
    return label_smoothed_nll_loss(lprobs, target, smoothing, ignore_index=PAD)


def in_double(inputs):
    return [None if t is None else t.detach().double().requires_grad_() for t in inputs]


def fairseq_gradients(inputs, target, smoothing, factor):
    loss, _ = fairseq_loss(inputs, target, smoothing)
    return torch.autograd.grad(factor * loss, [t for t in inputs if t is not None])


def rounding_errors(inputs, target, factor):
    """Return how far fairseq's own float32 gradients are off; this varies between CPUs."""
    exact = fairseq_gradients(in_double(inputs), target, 0.0, factor)
    single = fairseq_gradients(inputs, target, 0.0, factor)
    return [float((s - e).abs().max()) for s, e in zip(single, exact, strict=True)]


def assert_equals_fairseq(inputs, target, smoothing, close, factor=2.5):
    loss, plain = cross_entropy(*inputs, LossSpec(target, smoothing, PAD))
    used = [t for t in inputs if t is not None]
    grads = torch.autograd.grad(factor * loss, used)
    exact = in_double(inputs)
    expected, nll = fairseq_loss(exact, target, smoothing)
    theirs = fairseq_gradients(exact, target, smoothing, factor)
    torch.testing.assert_close(loss.double(), expected.double(), **close)
    torch.testing.assert_close(plain.double(), nll.double(), **close)
    rough = rounding_errors(inputs, target, factor)
    for ours, known, rounding in zip(grads, theirs, rough, strict=True):
        near = {**close, "atol": max(close["atol"], 2 * rounding)}
        torch.testing.assert_close(ours.double(), known, **near)
    assert not plain.requires_grad
    assert (grads[0][target == PAD] == 0).all()
    assert [grad.dtype for grad in grads] == [t.dtype for t in used]


@pytest.mark.parametrize("classes", [2, 3, 8, 16, 37, 100, 5208])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, DOUBLE), (torch.float32, SINGLE)], ids=["double", "single"]
)
def test_equals_fairseq(classes, smoothing, dtype, close):
    inputs, target = example(7, classes, dtype)
    assert can_fuse(inputs[1])
    assert_equals_fairseq(inputs, target, smoothing, close)
    assert_equals_fairseq([*inputs[:2], None], target, smoothing, close, factor=1)


def assert_near(inputs, target, limit):
    """Compare loss and gradients with fairseq's in double; return the largest relative error."""
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.1, PAD))
    grads = torch.autograd.grad(loss, inputs)
    exact = in_double(inputs)
    expected, _ = fairseq_loss(exact, target, 0.1)
    theirs = torch.autograd.grad(expected, exact)
    worst = max(
        float((ours - known).norm() / known.norm())
        for ours, known in zip((loss.detach(), *grads), (expected.detach(), *theirs), strict=True)
    )
    assert worst < limit
    return worst


# One table of logits; several tables, the last one smaller; features in two blocks.
SIZES = [(700, 130, 33), (1700, 4099, 33), (600, 5000, 1300)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_many_rows(precision, size, threads):
    rows, classes, features = size
    inputs, target = example(rows, classes, torch.float32, features, scale=0.5)
    with three_threads() if threads == 3 else contextlib.nullcontext():
        worst = assert_near(inputs, target, 1e-5 if precision == "highest" else 1e-2)
    narrow = precision == "medium" and cpp.extension()[0].is_narrow(inputs[1], classes)
    assert narrow == (worst > 1e-4)  # factors are rounded to 8 bits
    wanted = LossSpec(target, 0.1, PAD)
    loss, plain = cross_entropy(*inputs, wanted)
    with torch.no_grad():
        torch.testing.assert_close(cross_entropy(*inputs, wanted), (loss, plain), rtol=0, atol=0)


@pytest.mark.full
@pytest.mark.parametrize("size", [SIZES[1]], ids=str)
def test_many_rows_in_double(size):
    rows, classes, features = size
    inputs, target = example(rows, classes, torch.float64, features, scale=0.5)
    assert_near(inputs, target, 1e-13)


@pytest.mark.parametrize("wanted", [(), (0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_gradients_of_some_inputs(wanted):
    inputs, target = example(6, 11)
    exact = in_double(inputs)
    expected, nll = fairseq_loss(exact, target, 0.1)
    for place, tensor in enumerate(inputs):
        tensor.requires_grad_(place in wanted)
    loss, plain = cross_entropy(*inputs, LossSpec(target, 0.1, PAD))
    torch.testing.assert_close([loss, plain], [expected, nll[()]])
    assert loss.requires_grad == bool(wanted)
    for place in wanted:
        torch.testing.assert_close(
            torch.autograd.grad(loss, inputs[place], retain_graph=True),
            torch.autograd.grad(expected, exact[place], retain_graph=True),
        )


def test_no_gradients_are_computed_without_grad_mode(monkeypatch):
    """In validation, too, the weights are parameters that require gradients."""
    inputs, target = example(6, 11)
    asked, original = [], cpp.OPS.cross_entropy

    def spy(*args):
        asked.append(args[-1])
        return original(*args)

    monkeypatch.setattr(cpp.OPS, "cross_entropy", spy)
    wanted = LossSpec(target, 0.1, PAD)
    cross_entropy(*inputs, wanted)
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            cross_entropy(*inputs, wanted)
    assert asked == [[True] * 3, [False] * 3, [False] * 3]


@pytest.mark.parametrize("rows", [20, 400])
def test_any_strides(precision, rows):
    """Views keep their strides; the larger number of rows uses packed panels."""
    inputs, target = example(rows, 3500, torch.float32, features=24)
    x, weight, bias = (t.detach() for t in inputs)
    x = x.flatten(0, 1)
    close = {"rtol": 1e-5, "atol": 1e-5} if precision == "highest" else {"rtol": 1e-2, "atol": 0.1}

    def result(x, weight, bias, target):
        tensors = [t.detach().requires_grad_() for t in (x, weight, bias)]
        loss, _ = cross_entropy(*tensors, LossSpec(target, 0.2, PAD))
        return loss, *torch.autograd.grad(loss, tensors)

    expected = result(x, weight, bias, target)
    for other in (
        (torch.cat([x, x], 1)[:, :24], weight, bias, target),
        (x.t().contiguous().t(), weight.t().contiguous().t(), bias, target),
        (x, torch.stack([weight, weight], -1)[..., 0], torch._neg_view(-bias), target),
        (torch._neg_view(-x), torch.cat([weight, weight], 1)[:, :24], bias, target),
        (x, torch._neg_view(-weight), bias, target.t().contiguous().t()),
    ):
        torch.testing.assert_close(result(*other), expected, **close)
    unpadded = target.where(target != PAD, 7)
    sliced = torch.cat([x, x], 1)[:, :24]
    plain = result(x, weight, bias, unpadded)
    torch.testing.assert_close(result(sliced, weight, bias, unpadded), plain, **close)


def inputs_with_logits(bias, rows):
    """Return x and weight whose product is 0, so that the logits are ``bias``."""
    classes = len(bias)
    x = torch.zeros(rows, 2, dtype=bias.dtype, requires_grad=True)
    return x, torch.ones(classes, 2, dtype=bias.dtype), bias.requires_grad_()


def test_class_of_probability_zero():
    bias = rand(20, dtype=torch.float32)
    bias[4] = -math.inf
    inputs, target = inputs_with_logits(bias, 6), torch.tensor([5, 0, PAD, 19, 3, 5])
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.0, PAD))
    (grad,) = torch.autograd.grad(loss, bias)
    logits = bias.expand(6, 20)
    expected = torch.nn.functional.cross_entropy(logits, target, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(loss, expected)
    assert grad.isfinite().all()
    assert grad[4].abs() < 1e-30


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_far_apart(dtype):
    for likely, value, loss_of_0 in ((4, 1000.0, 2000.0), (32, 30.0, 1030.0)):
        bias = torch.full((33,), -1000.0, dtype=dtype)
        bias[likely] = value
        inputs, expected = inputs_with_logits(bias, 2), torch.zeros(33, dtype=dtype)
        loss, _ = cross_entropy(*inputs, LossSpec(torch.tensor([likely, 0]), 0.0, PAD))
        assert loss.item() == pytest.approx(loss_of_0, rel=1e-6)
        (grad,) = torch.autograd.grad(loss, bias)
        expected[likely], expected[0] = 1, -1
        torch.testing.assert_close(grad, expected, rtol=0, atol=1e-30)


def test_only_padding_and_nan():
    inputs, target = example(4, 9)
    for rows in (4, 0):
        inputs[0] = inputs[0].detach()[:, :rows].requires_grad_()
        nothing = torch.full((2, rows), PAD)
        loss, plain = cross_entropy(*inputs, LossSpec(nothing, 0.1, PAD))
        assert loss.item() == plain.item() == 0
        assert not any(grad.any() for grad in torch.autograd.grad(loss, inputs))
    inputs, target = example(4, 9)
    with torch.no_grad():
        inputs[0][0, 2] = math.nan
    loss, _ = cross_entropy(*inputs, LossSpec(torch.full_like(target, 5), 0.1, PAD))
    assert math.isnan(loss.item())


def test_second_derivatives_are_refused():
    """They are refused even if the incoming gradient is a constant."""
    inputs, target = example(3, 5)
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.1, PAD))
    with pytest.raises(UserError, match="fused criterions have no second derivatives"):
        torch.autograd.grad(loss, inputs, create_graph=True)


def test_a_second_backward():
    """It is an error as in torch, or with retain_graph gives the same gradients."""
    inputs, target = example(3, 5)
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.1, PAD))
    first = torch.autograd.grad(loss, inputs, retain_graph=True)
    kept = [grad.clone() for grad in first]
    for grad in first:
        grad.zero_()
    second = torch.autograd.grad(3 * loss, inputs)
    torch.testing.assert_close(list(second), [3 * grad for grad in kept])
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_wrong_inputs_are_errors():
    (x, weight, bias), target = example(4, 9)
    for wrong, message in (
        ((x, weight[:8], bias), "bias has shape"),
        ((x, weight[:, :4], bias), "weight has shape"),
        ((x[:1], weight, bias), "target has shape"),
        ((x, weight.float(), bias), "not of one type"),
        ((x, weight[:1], bias[:1]), "only one class"),
        ((x, weight[:8], bias[:8]), "a target is not among the 8 classes"),
    ):
        with pytest.raises(RuntimeError, match=message):
            cross_entropy(*wrong, LossSpec(target, 0.0, PAD))


def test_can_fuse():
    weight = torch.zeros(9, 5)
    assert can_fuse(weight)
    assert not can_fuse(weight.bfloat16())
    assert not can_fuse(weight.to("meta"))
    with FakeTensorMode():
        assert not can_fuse(torch.zeros(9, 5))
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_fuse(weight)
