"""The best next words of a beam search, compared with sorting a table of log-probabilities."""

import math

import pytest
import torch
from helpers import rand
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairseq_casrnn import recurrence
from fairseq_casrnn.recurrence import products

compiled = pytest.mark.skipif(
    "cpp" not in recurrence.installed(), reason="engine cpp is not compiled"
)


def by_sorting(lprobs, scores, count):
    """Return the best values and their places, the first of equal ones; NaN is the worst."""
    sums = (lprobs + scores.unsqueeze(-1)).nan_to_num(nan=-math.inf, neginf=-math.inf).flatten(1)
    values, indices = sums.sort(dim=1, descending=True, stable=True)
    return values[:, :count], indices[:, :count]


@compiled
@settings(deadline=None)
@given(
    batch=st.integers(1, 30),
    rows=st.integers(1, 7),
    size=st.one_of(st.integers(2, 40), st.integers(200, 900)),
    count=st.integers(1, 9),
    seed=st.integers(0, 99),
    with_bias=st.booleans(),
    with_nan=st.booleans(),
    precision=st.sampled_from(["highest", "medium"]),
)
@torch.no_grad()
def test_next_words_are_the_best_sums_of_the_table(
    batch, rows, size, count, seed, with_bias, with_nan, precision
):
    """Some words have penalties; several threads may share the rows of a sentence."""
    # With few rows, only weights packed for many steps are rounded, not those of the table.
    assume(precision == "highest" or not 16 <= batch * rows < 64)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch * rows, 20, generator=generator)
    weight, bias = torch.randn(size, 20, generator=generator), None
    if with_bias:
        bias = torch.randn(size, generator=generator)
    if with_nan:
        x[0, 3] = math.nan
    scores = -3 * torch.rand(batch, rows, generator=generator)
    count = min(count, rows * size)
    penalties = {0: math.inf, size // 2: 0.5, size - 1: -0.25}
    threads, before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision(precision)
    try:
        table = products.linear(x, weight, bias).log_softmax(-1)
        for word, penalty in penalties.items():
            table[:, word] -= penalty
        found = products.next_words(weight, bias, batch * rows, 9)
        values, indices = found.best(x, scores, count, penalties)
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(before)
    table = table.view(batch, rows, size)
    expected, _ = by_sorting(table, scores, count)
    torch.testing.assert_close(values, expected)
    sums = (table + scores.unsqueeze(-1)).flatten(1).nan_to_num(nan=-math.inf, neginf=-math.inf)
    torch.testing.assert_close(sums.gather(1, indices), values)


@compiled
@torch.no_grad()
def test_ties_choose_the_first_next_words():
    found = products.next_words(torch.zeros(50, 8), None, 60, 9)
    values, indices = found.best(torch.randn(60, 8), torch.zeros(20, 3), 4, {1: math.inf})
    torch.testing.assert_close(values, torch.full((20, 4), -math.log(50)))
    assert indices.tolist() == [[0, 2, 3, 4]] * 20


@compiled
@torch.no_grad()
def test_memory_layout_has_no_effect_on_next_words():
    """Rows are more than a few, so that the extension multiplies; views may be negated, too."""
    x, weight, bias, scores = (
        rand(*shape, seed=i, dtype=torch.float32)
        for i, shape in enumerate([(60, 8), (50, 8), (50,), (20, 3)])
    )

    def best(x, bias, scores):
        return products.next_words(weight, bias, 60, 9).best(x, scores, 4, {})

    expected = best(x, bias, scores)
    for arguments in (
        (torch._neg_view(-x), bias, scores),
        (x, torch._neg_view(-bias), scores),
        (x, bias, torch._neg_view(-scores)),
        (torch.stack([x, x], -1)[..., 0], bias, scores),
        (x, bias, scores.t().contiguous().t()),
    ):
        assert all(map(torch.equal, best(*arguments), expected))


@compiled
def test_no_next_words_with_gradients_in_double_or_on_eager():
    weight = torch.zeros(50, 8)
    assert products.next_words(weight, None, 60, 9) is None
    with torch.no_grad():
        assert products.next_words(weight.double(), None, 60, 9) is None
        assert products.next_words(weight, None, 60, 9, engine="eager") is None


@compiled
@torch.no_grad()
def test_invalid_arguments_of_next_words():
    found = products.next_words(torch.zeros(50, 8), None, 6, 9)
    x, scores = torch.zeros(6, 8), torch.zeros(2, 3)
    for arguments in (
        (x[:5], scores, 2, {}),
        (x[:, :7], scores, 2, {}),
        (x, scores, 151, {}),
        (x, scores, 2, {50: 1.0}),
        (x.double(), scores, 2, {}),
    ):
        with pytest.raises(RuntimeError):
            found.best(*arguments)
