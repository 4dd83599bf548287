"""Products of one weight in all steps of a loop, which the compiled extension computes."""

import gc
import weakref

import pytest
import torch
from helpers import assert_close, gradients, rand, weighted

from fairseq_casrnn import recurrence
from fairseq_casrnn.recurrence.shared_weight import SharedWeightLinear

pytestmark = pytest.mark.skipif("cpp" not in recurrence.installed(), reason="cpp is not compiled")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # sums of hundreds of terms of size 1 in float32


def steps(multiply, parts):
    """Return the products of a loop in which each step's input depends on the step before."""
    results = []
    for x in parts:
        results.append(multiply(x * results[-1].mean() if results else x))
    return results


@pytest.mark.parametrize("rows", [300, 70, 30, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients(precision, rows, dtype):
    """Later inputs are transposed, have more dimensions, or have fewer rows."""
    weight = rand(50, 40, dtype=dtype).requires_grad_()
    parts = [rand(rows, 40, seed=n, dtype=dtype) for n in range(4)]
    parts[1], parts[2] = rand(40, rows, dtype=dtype).t(), rand(2, rows // 2, 40, dtype=dtype)
    parts[3] = parts[3][: rows - 1]
    parts = [x.requires_grad_() for x in parts]
    ours = steps(SharedWeightLinear(weight, 3), parts)
    exact = [t.detach().double().requires_grad_() for t in (weight, *parts)]
    theirs = steps(lambda x: x @ exact[0].t(), exact[1:])
    assert [y.shape for y in ours] == [y.shape for y in theirs]
    grads = gradients(weighted(ours), [weight, *parts])
    expected = gradients(weighted(theirs), exact)
    rounding = 1e-12 if dtype == torch.float64 else 1e-5 if precision == "highest" else 2e-2
    for found, known in zip([*ours, *grads], [*theirs, *expected], strict=True):
        assert (found - known).norm() <= rounding * known.norm()


def test_repeated_backward_passes():
    """No pass leaves a sum or an omission behind for the next."""
    weight = rand(50, 40).float().requires_grad_()
    parts = [rand(80, 40, seed=n).float().requires_grad_() for n in range(3)]
    ours = steps(SharedWeightLinear(weight, 3), parts)
    theirs = steps(lambda x: x @ weight.t(), parts)
    for wanted in (parts[:1], [weight], [weight, *parts], [weight], parts[1:]):
        for last in (3, 2):  # use the first outputs only
            found, known = (
                torch.autograd.grad(
                    weighted(ys[:last]), wanted, retain_graph=True, allow_unused=True
                )
                for ys in (ours, theirs)
            )
            assert_close(*([g for g in gs if g is not None] for gs in (found, known)), CLOSE)
            assert [g is None for g in found] == [g is None for g in known]


def test_other_uses_of_the_weight():
    weight = rand(50, 40).float().requires_grad_()
    x = rand(80, 40).float()
    multiply = SharedWeightLinear(weight, 3)
    weighted([multiply(x), multiply(x[:9]), x[:5] @ weight.t()]).backward()
    exact = weight.detach().double().requires_grad_()
    weighted(
        [x.double() @ exact.t(), x[:9].double() @ exact.t(), x[:5].double() @ exact.t()]
    ).backward()
    assert_close([weight.grad], [exact.grad.float()], CLOSE)
    before = weight.grad.clone()
    weighted([SharedWeightLinear(weight, 3)(x)]).backward()  # accumulates
    assert (weight.grad - before).norm() > 1


def test_second_derivatives():
    x, weight = rand(3, 4).requires_grad_(), rand(5, 4).requires_grad_()

    def twice(x, weight):
        multiply = SharedWeightLinear(weight, 3)
        return multiply(x.sin()) * multiply(x)

    assert torch.autograd.gradgradcheck(twice, (x, weight))


def test_frozen_weight():
    x, weight = rand(80, 40).float().requires_grad_(), rand(50, 40).float()
    SharedWeightLinear(weight, 3)(x).sum().backward()
    assert_close([x.grad], [weight.sum(0).expand(80, 40)], CLOSE)
    with torch.no_grad():
        assert_close([SharedWeightLinear(weight, 3)(x)], [x @ weight.t()], CLOSE)


def test_changing_the_weight_before_backward_is_an_error():
    weight = rand(50, 40).float().requires_grad_()
    y = SharedWeightLinear(weight, 3)(rand(80, 40).float().requires_grad_())
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_saved_tensors_are_freed_at_once():
    """They are freed without a run of Python's cycle collector."""
    gc.disable()
    try:
        weight = rand(50, 40).float().requires_grad_()
        multiply = SharedWeightLinear(weight, 3)
        shared = weakref.ref(multiply._shared)
        y = multiply(multiply(rand(80, 40).float())[:, :40])
        assert shared() is not None
        del multiply
        y.sum().backward()
        del y
        assert shared() is None
    finally:
        gc.enable()


def test_other_dtypes_and_autocast_use_torch():
    x, weight = rand(80, 40).bfloat16(), rand(50, 40).bfloat16()
    assert torch.equal(SharedWeightLinear(weight, 3)(x), torch.nn.functional.linear(x, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert SharedWeightLinear(weight.float(), 3)(x.float()).dtype == torch.bfloat16
