"""Padding that the compiled loop skips."""

import pytest
import torch
from helpers import (
    FAMILIES,
    SINGLE,
    assert_close,
    every_compiled_case,
    gradients,
    rand,
    three_threads,
)

from fairseq_casrnn.layers import CASLSTM, LSTM
from fairseq_casrnn.recurrence import InputProduct, cpp
from fairseq_casrnn.recurrence.ragged import PackedLayout, PaddedLayout

from .test_cpp import PRECISIONS, compiled, layer_of, run_only

LAST = torch.tensor([3, 0, 6, 3, 1, 6])  # last steps of sequences in a batch of seven steps


@pytest.fixture
def ragged(monkeypatch):
    """Skip even little padding; yields the list of layouts that were used."""
    used = []

    class Spy(PackedLayout):
        def __init__(self, *args):
            super().__init__(*args)
            used.append(self)

    monkeypatch.setattr(cpp, "RAGGED_PRODUCTS", 0)
    monkeypatch.setattr(cpp, "PackedLayout", Spy)
    return used


def real_only(result, last, leaves):
    """Return outputs without padding, and the gradients of their weighted sum."""
    steps = torch.arange(result[0].size(0)).unsqueeze(1)
    real = (steps <= last).unsqueeze(-1)
    seen = [t * real if t.dim() == 3 else t for t in result]
    total = sum((t * rand(*t.shape, seed=i).to(t.dtype)).sum() for i, t in enumerate(seen))
    return seen, gradients(total, leaves)


def assert_same(engines, cell, tensors, last, tolerance):
    leaves = [t for t in tensors if t is not None]
    (ours, d_ours), (theirs, d_theirs) = (
        real_only(run_only(engine, cell, tensors, last), last, leaves) for engine in engines
    )
    assert_close(ours, theirs, tolerance)
    assert_close(d_ours, d_theirs, {"rtol": tolerance["rtol"], "atol": 100 * tolerance["atol"]})


@compiled
@every_compiled_case
@PRECISIONS
@pytest.mark.parametrize("size", [5, 33])
def test_agrees_with_the_reference(case, dtype, tolerance, size, ragged):
    cell, tensors = layer_of(case, 7, 6, size, dtype)
    assert_same(("cpp", "reference"), cell, tensors, LAST, tolerance)
    assert len(ragged) == 1
    assert ragged[0].counts == [6, 5, 4, 4, 2, 2, 2]


@compiled
@every_compiled_case
def test_large_products_in_blocks_and_threads(case, ragged):
    """Steps in a block have unequal numbers of rows, at the end fewer rows than threads."""
    cell, tensors = layer_of(case, 40, 50, 65, torch.float32)
    with torch.no_grad():
        tensors[1] *= 0.3
        tensors[3] *= 0.5
    last = torch.arange(50) * 39 // 49
    with three_threads():
        assert_same(("cpp", "eager"), cell, tensors, last, SINGLE)
        with torch.no_grad():  # then each block of gates overwrites the last
            steps = torch.arange(40).unsqueeze(1)
            kept, alone = (
                [t[(steps <= last)] if t.dim() == 3 else t for t in result]
                for result in (
                    run_only("eager", cell, tensors, last),
                    run_only("cpp", cell, tensors, last),
                )
            )
            assert_close(alone, kept, SINGLE)
    assert len(ragged) == 2


@compiled
@pytest.mark.parametrize("output", ["hs", "h_n", "c_n", "cs"])
def test_gradients_of_one_output(output, ragged):
    case = next(c for c in FAMILIES if c.name == "cas_lstm")
    cell, tensors = layer_of(case, 7, 6, 5, torch.float64)
    at = ["hs", "cs", "h_n", "c_n"].index(output)
    leaves = [t for t in tensors if t is not None]
    found = []
    for engine in ("cpp", "reference"):
        part = run_only(engine, cell, tensors, LAST)[at]
        if part.dim() == 3:
            part = part * (torch.arange(7).unsqueeze(1) <= LAST).unsqueeze(-1)
        found.append(gradients((part * rand(*part.shape, seed=1)).sum(), leaves))
    assert_close(*found)
    assert ragged


@compiled
def test_all_sequences_shorter_than_the_batch(ragged):
    cell, tensors = layer_of(FAMILIES[0], 7, 3, 5, torch.float64)
    last = torch.tensor([1, 3, 0])
    assert_same(("cpp", "reference"), cell, tensors, last, {"rtol": 1e-9, "atol": 1e-11})
    assert ragged[0].counts == [3, 2, 1, 1]
    hs, *_ = run_only("cpp", cell, tensors, last)
    assert not hs[4:].any()
    assert not hs[2:, 2].any()


@compiled
def test_a_second_backward_pass(ragged):
    layer = CASLSTM(4, 5, 2, bidirectional=True, engine="cpp")
    x, lengths = rand(7, 3, 4, dtype=torch.float32).requires_grad_(), torch.tensor([2, 7, 4])
    output, _ = layer(x, lengths=lengths)
    first, second = (
        torch.autograd.grad(output.square().sum(), x, retain_graph=True)[0] for _ in range(2)
    )
    assert torch.equal(first, second)
    assert len(ragged) == 4


@compiled
def test_padding_is_not_read(ragged):
    layer = LSTM(4, 5, engine="cpp")
    x, lengths = rand(7, 3, 4, dtype=torch.float32), torch.tensor([2, 7, 4])
    x[2:, 0] = float("nan")
    output, (h_n, c_n) = layer(x, lengths=lengths)
    assert all(t.isfinite().all() for t in (output, h_n, c_n))
    (output.sum() + h_n.sum() + c_n.sum()).backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    assert ragged


def test_layout():
    """The sequences have lengths 2, 4 and 1; rows are sorted by step, longest sequence first."""
    layout = PackedLayout(5, 3, torch.tensor([1, 3, 0]))
    assert layout.counts == [3, 2, 1, 1]
    labels = torch.tensor([[10 * t + b for b in range(3)] for t in range(5)]).unsqueeze(-1)
    rows = layout.pack(labels)
    assert rows.flatten().tolist() == [1, 0, 2, 11, 10, 21, 31]
    back = layout.unpack(rows).squeeze(-1)
    assert back.tolist() == [[0, 1, 2], [10, 11, 0], [0, 21, 0], [0, 31, 0], [0, 0, 0]]
    assert layout.final(torch.cat([rows.new_zeros(3, 1), rows])).flatten().tolist() == [10, 31, 2]
    batch = torch.tensor([5, 6, 7])
    assert layout.sort(batch).tolist() == [6, 5, 7]
    assert layout.unsort(layout.sort(batch)).tolist() == [5, 6, 7]


def test_sequences_of_equal_length_keep_their_order():
    assert PackedLayout(2, 4, torch.tensor([0, 1, 0, 1])).order.tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize(
    ("steps", "batch", "size", "last", "kind"),
    [
        (50, 64, 64, None, PaddedLayout),
        (50, 64, 64, torch.full((64,), 49), PaddedLayout),
        (50, 64, 64, torch.arange(64) % 50, PackedLayout),
        (50, 64, 64, torch.full((64,), 47), PaddedLayout),  # 4 % padding
        (50, 64, 4, torch.arange(64) % 50, PaddedLayout),  # small weights
    ],
)
def test_padding_is_skipped_if_it_is_worthwhile(steps, batch, size, last, kind):
    cell = LSTM(size, size).cells[0]
    product = InputProduct(torch.zeros(steps, batch, size), rand(4 * size, size), rand(4 * size))
    assert type(cpp.layout_of(cell, product, rand(batch, size), last)) is kind


@compiled
def test_layers_agree_with_padding_skipped_or_computed(monkeypatch):
    """The layer is large enough that padding is skipped by default."""
    layer = CASLSTM(64, 64, 2, bidirectional=True).eval()
    x, lengths = rand(60, 32, 64, dtype=torch.float32), torch.arange(32) * 59 // 31 + 1
    output, (h_n, c_n) = layer(x, lengths=lengths)
    monkeypatch.setattr(cpp, "RAGGED_PRODUCTS", float("inf"))
    padded, (padded_h, padded_c) = layer(x, lengths=lengths)
    assert_close([output, h_n, c_n], [padded, padded_h, padded_c], SINGLE)
