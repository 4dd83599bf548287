"""With the engine ``reference``, every part of a model runs PyTorch operations under autograd."""

import pytest
import torch
from helpers import FAMILIES, rand
from torch.autograd.function import BackwardCFunction

from fairseq_casrnn import recurrence
from fairseq_casrnn.layers import SentenceStateLSTM, ShortcutStackedLSTM
from fairseq_casrnn.recurrence import products
from fairseq_casrnn.recurrence.cross_entropy import can_fuse

from . import common


def own_functions(*outputs) -> set[str]:
    """Names of the custom autograd functions in the graphs of ``outputs``."""
    seen, names, nodes = set(), set(), [t.grad_fn for t in outputs if t.grad_fn is not None]
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            names.add(node.name())
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
    return names


@pytest.fixture(autouse=True)
def _small_products(monkeypatch):
    """Lower the number of rows from which on the compiled engine computes products."""
    monkeypatch.setattr(products, "LARGE", 1)


@pytest.mark.parametrize("case", FAMILIES, ids=str)
@pytest.mark.parametrize("variant", ["plain", "no-input-feed"])
def test_translation(case, variant):
    logits, _ = common.run(common.random_model(case, variant, engine="reference").float())
    assert own_functions(logits) == set()


@pytest.mark.parametrize(
    "make",
    [
        lambda engine: SentenceStateLSTM(4, 3, 2, engine=engine),
        lambda engine: ShortcutStackedLSTM(4, (3, 3), engine=engine),
    ],
)
def test_layers(make):
    x = rand(5, 2, 4, dtype=torch.float32)
    output, *_ = make("reference")(x, [5, 3])
    assert own_functions(output) == set()
    output, *_ = make(None)(x, [5, 3])
    assert own_functions(output)  # otherwise the assertion above would pass for any layer


def test_casrnn_engine_applies_to_products_and_loss(monkeypatch):
    x, weight = rand(9, 4, dtype=torch.float32), rand(3, 4, dtype=torch.float32).requires_grad_()
    compiled = "cpp" in recurrence.installed()
    assert bool(own_functions(products.linear(x, weight))) == compiled == can_fuse(weight)
    monkeypatch.setenv("CASRNN_ENGINE", "reference")
    assert not own_functions(products.linear(x, weight))
    assert not can_fuse(weight)
    assert not can_fuse(weight, "eager")
