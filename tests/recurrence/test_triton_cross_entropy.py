"""The cross entropy of engine ``triton`` compared with fairseq's (see also test_triton.py)."""

import math

import pytest
import torch
import torch.nn.functional as F
from criterions.test_fused_cross_entropy import both, every_pair, results, translation
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.utils import apply_to_sample
from helpers import HALVES, SINGLE, assert_close, rand

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recurrence.cross_entropy import can_fuse, cross_entropy
from fairseq_casrnn.recurrence.inputs import LossSpec

from .test_triton import DEVICE, runs

pytestmark = runs
PAD = 1
ROUNDING = {torch.float32: SINGLE, **HALVES}
every_dtype = pytest.mark.parametrize("dtype", ROUNDING, ids=str)


def example(rows, classes, dtype=torch.float32, features=6, scale=1.0):
    """Return x (rows, E), weight, bias and a target in which every third word is padding."""
    shapes = (rows, features), (classes, features), (classes,)
    inputs = [rand(*shape, seed=i) for i, shape in enumerate(shapes)]
    inputs[1] *= scale
    target = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(classes))
    target[2::3] = PAD
    target[0] = classes - 1
    return [t.to(DEVICE, dtype).requires_grad_() for t in inputs], target.to(DEVICE)


def fairseq_loss(inputs, target, smoothing):
    logits = F.linear(*inputs)
    lprobs = torch.log_softmax(logits if logits.dtype == torch.double else logits.float(), -1)
    return label_smoothed_nll_loss(lprobs, target, smoothing, ignore_index=PAD)


def in_double(inputs):
    return [None if t is None else t.detach().double().requires_grad_() for t in inputs]


def grads_of(loss, inputs, **options):
    return torch.autograd.grad(loss, [t for t in inputs if t is not None], **options)


def distance(ours, exact):
    return float((ours.double() - exact).norm() / exact.norm())


def assert_equals_fairseq(inputs, target, smoothing):
    spec = LossSpec(target, smoothing, PAD)
    loss, nll = cross_entropy(*inputs, spec, engine="triton")
    exact = in_double(inputs)
    expected, expected_nll = fairseq_loss(exact, target, smoothing)
    close = ROUNDING[inputs[0].dtype]
    torch.testing.assert_close(loss.double(), expected, **close)
    torch.testing.assert_close(nll.double(), expected_nll[()], **close)
    assert loss.dtype == nll.dtype == torch.float32
    assert not nll.requires_grad
    grads = grads_of(2.5 * loss, inputs)
    for ours, theirs in zip(grads, grads_of(2.5 * expected, exact), strict=True):
        assert distance(ours, theirs) < close["rtol"]
    assert (grads[0][target == PAD] == 0).all()
    assert [g.dtype for g in grads] == [t.dtype for t in inputs if t is not None]


@every_dtype
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [(7, 3), (1, 37), (4, 2048), (3, 5001)], ids=str)
def test_equals_fairseq(dtype, smoothing, size):
    inputs, target = example(*size, dtype)
    assert can_fuse(inputs[1], "triton")
    assert_equals_fairseq(inputs, target, smoothing)
    assert_equals_fairseq([*inputs[:2], None], target, smoothing)


@every_dtype
def test_logits_recomputed_in_the_backward(dtype, monkeypatch):
    from fairseq_casrnn.recurrence.triton import cross_entropy as kernels

    inputs, target = example(11, 37, dtype)
    monkeypatch.setattr(kernels, "KEPT", 11 * 37 * inputs[0].element_size() - 1)
    monkeypatch.setattr(kernels, "CHUNK", 4 * 37 * inputs[0].element_size())
    made, linear = [], F.linear

    def spy(x, *args):
        made.append(len(x))
        return linear(x, *args)

    monkeypatch.setattr(kernels.F, "linear", spy)
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.1, PAD), "triton")
    loss.backward()
    assert made == [4, 4, 3] * 2
    monkeypatch.setattr(kernels.F, "linear", linear)
    assert_equals_fairseq(inputs, target, 0.1)
    monkeypatch.setattr(kernels, "CHUNK", 1)  # smaller than a row
    assert_equals_fairseq(inputs, target, 0.1)


@pytest.mark.parametrize("loss_scale", [1.0, 2.0**12])
def test_a_loss_scale_acts_before_rounding_to_float16(loss_scale):
    """Without the scale, gradients of unlikely classes would underflow in float16."""
    inputs, target = example(24, 500, torch.float16)
    with torch.no_grad():
        inputs[2][8:] -= 12
    target %= 8
    exact_inputs = in_double(inputs)
    exact = grads_of(loss_scale * fairseq_loss(exact_inputs, target, 0.0)[0], exact_inputs)
    theirs = grads_of(loss_scale * fairseq_loss(inputs, target, 0.0)[0], inputs)
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.0, PAD), "triton")
    ours = grads_of(loss_scale * loss, inputs)
    for found, known, right in zip(ours, theirs, exact, strict=True):
        assert distance(found, right) < 1.05 * distance(known, right) < 0.002
    # Only the gradients of the unlikely classes.
    errors = (ours[2].double() / exact[2] - 1).abs()[8:]
    assert (errors.max() < 0.01) == (loss_scale > 1)


def test_float16_overflows_as_in_torch():
    """fairseq must see the overflow to lower its loss scale."""
    inputs, target = example(4, 9, torch.float16)
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.0, PAD), "triton")
    assert not all(grad.isfinite().all() for grad in grads_of(2.0**24 * loss, inputs))


def test_autocast_rounds_the_factors():
    inputs, target = example(4, 37)
    rounded = [t.detach().bfloat16().requires_grad_() for t in inputs]
    losses = cross_entropy(*rounded, LossSpec(target, 0.1, PAD), "triton")
    with torch.autocast(DEVICE, torch.bfloat16):
        assert can_fuse(inputs[1], "triton")
        ours = cross_entropy(*inputs, LossSpec(target, 0.1, PAD), "triton")
    assert_close(ours, losses, {"rtol": 0, "atol": 0})
    for grad, known in zip(grads_of(ours[0], inputs), grads_of(losses[0], rounded), strict=True):
        assert grad.dtype == torch.float32
        assert torch.equal(grad, known.float())


@pytest.mark.parametrize("learning", [(), (0,), (1,), (2,), (0, 2)], ids=str)
def test_gradients_of_some_inputs(learning):
    inputs, target = example(6, 11)
    exact = in_double(inputs)
    expected, _ = fairseq_loss(exact, target, 0.1)
    for place, tensor in enumerate(inputs):
        tensor.requires_grad_(place in learning)
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.1, PAD), "triton")
    assert loss.requires_grad == bool(learning)
    if learning:
        loss.backward()
        theirs = grads_of(expected, exact)
        for place, tensor in enumerate(inputs):
            assert (tensor.grad is None) == (place not in learning)
            if place in learning:
                torch.testing.assert_close(tensor.grad.double(), theirs[place], **SINGLE)


def test_a_second_backward():
    """It is an error as in torch, or with retain_graph gives the same gradients."""
    inputs, target = example(3, 5)
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.1, PAD), "triton")
    first = grads_of(loss, inputs, retain_graph=True)
    torch.testing.assert_close(grads_of(3 * loss, inputs), tuple(3 * grad for grad in first))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.1, PAD), "triton")
    with pytest.raises(UserError, match="fused criterions have no second derivatives"):
        grads_of(loss, inputs, create_graph=True)


def test_logits_far_apart_and_infinite():
    bias = torch.full((33,), -1000.0, device=DEVICE)
    bias[4], bias[7] = 1000.0, -math.inf
    bias.requires_grad_()
    target = torch.tensor([4, 0], device=DEVICE)
    inputs = torch.zeros(2, 2, device=DEVICE), torch.ones(33, 2, device=DEVICE), bias
    loss, _ = cross_entropy(*inputs, LossSpec(target, 0.0, PAD), "triton")
    assert loss.item() == pytest.approx(2000)
    (grad,) = torch.autograd.grad(loss, bias)
    expected = torch.zeros(33, device=DEVICE)
    expected[4], expected[0] = 1, -1
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-30)


def test_only_padding_and_nan():
    for rows in (4, 0):
        inputs, target = example(4, 9)
        inputs[0] = inputs[0].detach()[:rows].requires_grad_()
        losses = cross_entropy(*inputs, LossSpec(target[:rows].fill_(PAD), 0.1, PAD), "triton")
        assert [float(loss.detach()) for loss in losses] == [0, 0]
        assert not any(grad.any() for grad in grads_of(losses[0], inputs))
    inputs, target = example(4, 9)
    for wrong in (9, -1, 2**40):  # targets that are no classes are not read out of bounds
        target[0] = wrong
        assert cross_entropy(*inputs, LossSpec(target, 0.1, PAD), "triton")[0].isnan()
    with torch.no_grad():
        inputs[0][1] = math.nan
    target[0] = 3
    assert cross_entropy(*inputs, LossSpec(target, 0.1, PAD), "triton")[0].isnan()
    with pytest.raises(RuntimeError, match="target has 3 words, x has 4 rows"):
        cross_entropy(*inputs, LossSpec(target[:3], 0.1, PAD), "triton")


@every_pair
def test_a_model_trains_as_with_fairseqs_criterion(pair, monkeypatch):
    model, sample = translation()
    sample = apply_to_sample(lambda tensor: tensor.to(DEVICE), sample)
    monkeypatch.setenv("CASRNN_ENGINE", "reference")
    expected = results(both(pair)[1], model.float().to(DEVICE), sample)
    monkeypatch.setenv("CASRNN_ENGINE", "triton")
    assert model.decoder.can_fuse_loss
    assert_close(results(both(pair)[0], model, sample), expected, SINGLE)
