"""Large linear maps in float32, which the compiled extension computes."""

import subprocess
import sys

import pytest
import torch
from helpers import assert_close, every_family, flat, gradients, rand, weighted

from fairseq_casrnn import recurrence
from fairseq_casrnn.recurrence import products

pytestmark = pytest.mark.skipif("cpp" not in recurrence.installed(), reason="cpp is not compiled")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # sums of hundreds of terms of size 1 in float32


def uses_extension(y):
    nodes = [y.grad_fn, *(node for node, _ in y.grad_fn.next_functions if node is not None)]
    return any("_Linear" in node.name() for node in nodes)


@pytest.mark.parametrize(
    "shape", [(512, 40, 96), (3, 367, 33, 70), (1537, 600, 35), (515, 2601, 130)], ids=str
)
@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_equals_the_product_in_double(shape, order, with_bias):
    *rows, inner, columns = shape
    x = rand(*rows, inner, dtype=torch.float32)
    weight = rand(columns, inner, dtype=torch.float32)
    inputs = [x, weight if order == "rows" else weight.t().contiguous().t()]
    if with_bias:
        inputs.append(rand(columns, dtype=torch.float32))
    inputs = [t.requires_grad_() for t in inputs]
    y = products.linear(*inputs)
    assert uses_extension(y)
    assert y.shape == (*rows, columns)
    expected = torch.nn.functional.linear(*(t.double() for t in inputs))
    assert_close([y.double()], [expected], CLOSE)
    grad = rand(*y.shape, dtype=torch.float32)
    ours = torch.autograd.grad(y, inputs, grad)
    theirs = torch.autograd.grad(expected, inputs, grad.double())
    assert_close(ours, theirs, {"rtol": 1e-4, "atol": 1e-3})


@pytest.mark.parametrize(
    ("rows", "dtype"), [(255, torch.float32), (600, torch.float64), (600, torch.bfloat16)], ids=str
)
def test_small_or_other_products_are_torchs(rows, dtype):
    x, weight = rand(rows, 8, dtype=dtype).requires_grad_(), rand(9, 8, dtype=dtype)
    y = products.linear(x, weight)
    assert not uses_extension(y)
    assert torch.equal(y, torch.nn.functional.linear(x, weight))


@pytest.mark.parametrize(("inner", "columns"), [(0, 5), (7, 0)])
def test_empty_products_are_torchs(precision, inner, columns):
    inputs = [rand(*shape, dtype=torch.float32) for shape in [(300, inner), (columns, inner)]]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    found = []
    for linear in (products.linear, torch.nn.functional.linear):
        y = linear(*inputs)
        found.append((y, *torch.autograd.grad(y.sum(), inputs)))
    assert_close(*found)


def test_any_strides(precision):
    """Rows may be slices or repeated, and the incoming gradient of sum() is expanded."""
    x = rand(2, 600, 80, dtype=torch.float32)
    cases = [x[0, :, ::2], x[:, :, :40].flatten(0, 1), x[0, :1, :40].expand(600, 40)]
    cases += [x[0, :, :1].expand(600, 40), x[0].t().contiguous().t()[:, :40], x[0, :, 3:4]]
    for rows in cases:
        weight = rand(70, rows.size(1), dtype=torch.float32)
        for factor in (weight, weight[:1]):
            inputs = [t.detach().requires_grad_() for t in (rows, factor)]
            y = products.linear(*inputs)
            grads = torch.autograd.grad(y.sum(), inputs)
            exact = [t.detach().double().requires_grad_() for t in inputs]
            expected = torch.nn.functional.linear(*exact)
            theirs = torch.autograd.grad(expected.sum(), exact)
            for ours, known in zip([y, *grads], [expected, *theirs], strict=True):
                tolerance = 1e-5 if precision == "highest" else 1e-2
                assert (ours - known).norm() <= tolerance * known.norm()


@pytest.mark.parametrize("rows", [64, 300])
def test_wrong_shapes_are_errors(precision, rows):
    x = rand(rows, 10, dtype=torch.float32)
    for weight, bias in (((5, 20), None), ((5, 9), None), ((500, 10), 3), ((5, 10), 9)):
        bias = None if bias is None else torch.zeros(bias)
        with pytest.raises(RuntimeError):
            products.linear(x, torch.zeros(weight), bias)


def test_negated_views():
    x, weight = rand(300, 10, dtype=torch.float32), rand(4, 10, dtype=torch.float32)
    expected = products.linear(x, weight)
    assert torch.equal(products.linear(torch._neg_view(-x), weight), expected)
    assert torch.equal(products.linear(x, torch._neg_view(-weight)), expected)


FP32_PRECISION = """
import torch, torch.nn.functional as F
from fairseq_casrnn.layers import CASLSTM
from fairseq_casrnn.recurrence import products
x, weight = torch.randn(300, 128), torch.randn(128, 128)
exact, layer = x.double() @ weight.double().t(), CASLSTM(128, 128, 2)
for place, value in (
    (torch.backends, "bf16"),
    (torch.backends.mkldnn.matmul, "ieee"),
    (torch.backends.mkldnn.matmul, "bf16"),
    (torch.backends.cuda.matmul, "tf32"),
    (torch.backends.mkldnn.matmul, "ieee"),
):
    place.fp32_precision = value
    layer(x.view(5, 60, 128))
    ours, theirs = (
        bool((y - exact).abs().max() > 1e-3)
        for y in (products.linear(x, weight), F.linear(x, weight))
    )
    assert ours == products.is_narrow(x) >= theirs, (place, value)
    print(ours)
"""


def test_fp32_precision_switches():
    """This runs in its own process, since torch does not allow a return to the older switch."""
    done = subprocess.run([sys.executable, "-c", FP32_PRECISION], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    narrow = [line == "True" for line in done.stdout.split()]
    assert narrow in ([False] * 5, [True, False, True, True, False])  # depends on the processor


def test_autocast_uses_torch():
    x, weight = (rand(*shape, dtype=torch.float32) for shape in ((600, 8), (9, 8)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert products.linear(x, weight).dtype == torch.bfloat16


@every_family
def test_sequences_of_several_blocks_of_steps(case):
    """The last block of the 7,000 rows of the input is shorter than the others."""
    layer, other = (case.layer(20, 40, engine=engine) for engine in ("cpp", "eager"))
    other.load_state_dict(layer.state_dict())
    layer, other = layer.float(), other.float()
    x = rand(1000, 7, 20, dtype=torch.float32)
    results, grads = [], []
    for module in (layer, other):
        inputs = [x.clone().requires_grad_(), *module.parameters()]
        result = flat(module(inputs[0]))
        results.append(result)
        grads.append(gradients(weighted(result), inputs))
    assert_close(*results, {"rtol": 1e-4, "atol": 1e-5})
    for ours, theirs in zip(*grads, strict=True):
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm() + 1e-6


@pytest.mark.parametrize("rows", [300, 70])
def test_a_single_column_of_another_matrix(precision, rows):
    """The strides of a single column do not say which dimension is dense."""
    x, weight = rand(rows, 1, dtype=torch.float32), rand(5, 7, dtype=torch.float32)[:, 3:4]
    y = products.linear(x, weight)
    tolerance = CLOSE if precision == "highest" else {"rtol": 2e-2, "atol": 2e-2}
    assert_close([y], [torch.nn.functional.linear(x.double(), weight.double()).float()], tolerance)
    columns = rand(7, rows, dtype=torch.float32)[2:3].t()  # (rows, 1), strides 1
    assert_close([products.linear(columns, weight)], [columns @ weight.t()], tolerance)
