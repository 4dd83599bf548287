"""``--float32-matmul-precision``: the option, the environment variable and the resulting errors."""

import platform
import subprocess
import sys

import pytest
import torch
from fairseq import options
from helpers import (
    assert_close,
    every_compiled_family,
    every_engine,
    every_family,
    flat,
    gradients,
    rand,
    weighted,
)

from fairseq_casrnn import precision
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import CASLSTM
from fairseq_casrnn.recurrence import products

# bfloat16 keeps 8 bits of each factor, in sums of 64 products of either sign.
MEDIUM = {"rtol": 0.03, "atol": 0.03}


@pytest.fixture(autouse=True)
def _restore_precision(monkeypatch):
    monkeypatch.setenv(precision.VARIABLE, "")
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    "make", [options.get_training_parser, options.get_generation_parser], ids=["train", "generate"]
)
@pytest.mark.parametrize("value", precision.TRAINING_CHOICES)
def test_option_of_fairseqs_programs(make, value, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    torch.set_float32_matmul_precision("high" if value == "highest" else "highest")
    make().parse_known_args(["data", "--float32-matmul-precision", value])
    assert torch.get_float32_matmul_precision() == value
    torch.set_float32_matmul_precision("highest")
    precision.set_precision_from_environment()  # as a worker process does
    assert torch.get_float32_matmul_precision() == value


def test_without_the_option_nothing_changes(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    torch.set_float32_matmul_precision("high")
    options.get_training_parser().parse_known_args(["data"])
    precision.set_precision_from_environment()
    assert torch.get_float32_matmul_precision() == "high"


def test_unknown_values(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    with pytest.raises(SystemExit):
        options.get_training_parser().parse_known_args(["--float32-matmul-precision", "low"])
    assert "invalid choice: 'low'" in capsys.readouterr().err
    monkeypatch.setenv(precision.VARIABLE, "low")
    with pytest.raises(UserError, match=r"PRECISION is 'low'; choose from highest, high, medium"):
        precision.set_precision_from_environment()


@every_family
@every_engine
def test_medium_agrees_with_highest(case, engine):
    layer = case.layer(64, 64, engine=engine)
    x = rand(7, 5, 64, dtype=torch.float32).requires_grad_()
    results, grads = [], []
    for value in ("highest", "medium"):
        torch.set_float32_matmul_precision(value)
        result = flat(layer(x))
        assert all(part.dtype == torch.float32 for part in result)
        results.append(result)
        grads.append(gradients(weighted(result), [x, *layer.parameters()]))
    assert_close(*results, MEDIUM)
    for medium, highest in zip(*grads, strict=True):
        assert (medium - highest).norm() <= 0.03 * highest.norm() + 1e-6


def has_narrow_products() -> bool:
    torch.set_float32_matmul_precision("medium")
    answer = products.is_narrow(torch.zeros(64, 64))
    torch.set_float32_matmul_precision("highest")
    return answer


narrow_only = pytest.mark.skipif(not has_narrow_products(), reason="needs AVX512_BF16")


def rounded(x):
    return x.bfloat16().float()


@narrow_only
@pytest.mark.parametrize(
    "shape",
    # With AMX, torch computes products of fewer than 256 rows, forward or backward.
    [
        (3, 47, 65, 70),
        (1, 200, 260, 96),
        (1, 71, 2601, 130),
        (2, 150, 2601, 300),
        (1, 600, 65, 257),
    ],
)
def test_linear_rounds_its_factors(shape):
    *rows, inner, columns = shape
    x = rand(*rows, inner, dtype=torch.float32).requires_grad_()
    weight = rand(columns, inner, dtype=torch.float32).requires_grad_()
    bias = rand(columns, dtype=torch.float32).requires_grad_()
    torch.set_float32_matmul_precision("medium")
    y = products.linear(x, weight, bias)
    grad = rand(*y.shape, dtype=torch.float32)
    grads = torch.autograd.grad(y, [x, weight, bias], grad)
    torch.set_float32_matmul_precision("highest")
    # Factors have 8 bits, and sums are in float32.
    close = {"rtol": 1e-5, "atol": 1e-3}
    a, w, g = (rounded(t.detach()) for t in (x, weight, grad))
    assert_close([y - bias], [a @ w.t()], close)
    flat_a, flat_g = a.flatten(0, -2), g.flatten(0, -2)
    expected = [g @ w, flat_g.t() @ flat_a, grad.flatten(0, -2).sum(0)]
    for ours, theirs in zip(grads, expected, strict=True):
        assert_close([ours], [theirs], close)
    assert not torch.equal(y, torch.nn.functional.linear(x, weight, bias))


@narrow_only
def test_second_derivatives_of_linear():
    x = rand(70, 20, dtype=torch.float32).requires_grad_()
    weight = rand(18, 20, dtype=torch.float32).requires_grad_()
    results = []
    for value in ("highest", "medium"):
        torch.set_float32_matmul_precision(value)
        y = products.linear(x, weight).pow(2).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        results.append(torch.autograd.grad(first.pow(2).sum(), [x, weight]))
    for highest, medium in zip(*results, strict=True):
        assert not torch.equal(medium, highest)
        assert (medium - highest).norm() <= 0.03 * highest.norm()


@narrow_only
def test_few_rows_and_double_stay_exact():
    torch.set_float32_matmul_precision("medium")
    assert not products.is_narrow(torch.zeros(63, 64))
    assert not products.is_narrow(torch.zeros(64, 64, dtype=torch.double))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not products.is_narrow(torch.zeros(64, 64))


@narrow_only
@every_compiled_family
def test_compiled_loop_rounds_its_factors(case):
    layer = case.layer(96, 96, engine="cpp")
    x = rand(7, 32, 96, dtype=torch.float32).requires_grad_()
    results, grads = [], []
    for value in ("highest", "medium"):
        torch.set_float32_matmul_precision(value)
        result = flat(layer(x))
        results.append(result)
        grads.append(gradients(weighted(result), [x, *layer.parameters()]))
    assert_close(*results, MEDIUM)
    for highest, medium, (name, _) in zip(
        *grads, [("x", None), *layer.named_parameters()], strict=True
    ):
        assert not torch.equal(medium, highest), name
        assert (medium - highest).norm() <= 0.03 * highest.norm() + 1e-6


@narrow_only
def test_weights_in_column_order():
    torch.set_float32_matmul_precision("medium")
    grads = []
    for turn in (False, True):
        layer = CASLSTM(40, 24, 2, engine="cpp")
        for parameter in layer.parameters():
            values = 0.3 * rand(*parameter.shape, dtype=torch.float32)
            if turn and values.dim() == 2:
                values = values.t().contiguous().t()
            parameter.data = values
        x = rand(9, 20, 40, dtype=torch.float32)
        grads.append(gradients(weighted(flat(layer(x))), list(layer.parameters())))
    for plain, turned in zip(*grads, strict=True):
        assert (turned - plain).norm() <= 0.01 * plain.norm()


# --- denormal numbers ---------------------------------------------------------------------------

DENORMALS = """
import sys
sys.argv = ["{program}"]
import fairseq_casrnn, torch
fairseq_casrnn.register()
torch.set_num_threads(2)
small = torch.full((1 << 20,), 1e-30)
denormal = torch.full((1 << 20,), 1 << 10, dtype=torch.int32).view(torch.float32)
print((small * 1e-10).count_nonzero().item(), (denormal * 2.0).count_nonzero().item())
"""


@pytest.mark.full
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="for SSE's registers")
@pytest.mark.parametrize("flushed", [True, False])
def test_programs_flush_denormals_in_all_threads(flushed):
    """Both results and factors are flushed, but not if a library imports this package."""
    program = "fairseq-train" if flushed else "notebook"
    command = [sys.executable, "-c", DENORMALS.format(program=program)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == (["0", "0"] if flushed else [str(1 << 20)] * 2)
