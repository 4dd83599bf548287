"""``--float32-matmul-precision``: the option, the variable, and how far results may move."""

import pytest
import torch
from fairseq import options
from helpers import assert_close, every_engine, every_family, flat, gradients, rand, weighted

from fairseq_casrnn import precision
from fairseq_casrnn.errors import UserError

# bfloat16 keeps 8 bits of each factor; sums of 64 products of either sign.
MEDIUM = {"rtol": 0.03, "atol": 0.03}


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setenv(precision.VARIABLE, "")
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    "make", [options.get_training_parser, options.get_generation_parser], ids=["train", "generate"]
)
@pytest.mark.parametrize("value", precision.CHOICES)
def test_option_of_fairseqs_programs(make, value, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    torch.set_float32_matmul_precision("high" if value == "highest" else "highest")
    make().parse_known_args(["data", "--float32-matmul-precision", value])
    assert torch.get_float32_matmul_precision() == value
    torch.set_float32_matmul_precision("highest")
    precision.install()  # as a worker process does, which inherits the environment
    assert torch.get_float32_matmul_precision() == value


def test_without_the_option_nothing_changes(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    torch.set_float32_matmul_precision("high")
    options.get_training_parser().parse_known_args(["data"])
    precision.install()
    assert torch.get_float32_matmul_precision() == "high"


def test_unknown_values(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    with pytest.raises(SystemExit):
        options.get_training_parser().parse_known_args(["--float32-matmul-precision", "low"])
    assert "invalid choice: 'low'" in capsys.readouterr().err
    monkeypatch.setenv(precision.VARIABLE, "low")
    with pytest.raises(UserError, match=r"PRECISION is 'low'; choose from highest, high, medium"):
        precision.install()


@every_family
@every_engine
def test_medium_stays_close(case, engine):
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
