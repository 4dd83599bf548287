"""The choice among continuations in beam search, beside torch.topk and fairseq's own."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.search import BeamSearch, DiverseBeamSearch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairseq_casrnn import recurrence
from fairseq_casrnn.patches import beam_search, install
from fairseq_casrnn.patches.table import TABLE
from fairseq_casrnn.recurrence import cpp, products

compiled = pytest.mark.skipif(
    "cpp" not in recurrence.installed(), reason="engine cpp is not compiled"
)
ROOT = Path(__file__).resolve().parents[2]
STEPS = [patch for patch in TABLE if patch.hook.startswith("patches.beam_search.")]


def table(batch, rows, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lprobs = torch.randn(batch, rows, size, generator=generator).log_softmax(-1)
    return lprobs, -3 * torch.rand(batch, rows, generator=generator)


def by_sorting(lprobs, scores, count):
    """The best values and their places, of equal ones the first; NaN as the worst number."""
    sums = (lprobs + scores.unsqueeze(-1)).nan_to_num(nan=-math.inf, neginf=-math.inf).flatten(1)
    values, indices = sums.sort(dim=1, descending=True, stable=True)
    return values[:, :count], indices[:, :count]


@compiled
@settings(deadline=None)
@given(
    batch=st.integers(1, 3),
    rows=st.integers(1, 4),
    size=st.one_of(st.integers(2, 40), st.integers(200, 900)),
    count=st.integers(1, 9),
    seed=st.integers(0, 99),
    coarse=st.booleans(),
    spoilt=st.sampled_from([None, -math.inf, math.nan]),
)
def test_the_best_sums(batch, rows, size, count, seed, coarse, spoilt):
    lprobs, scores = table(batch, rows, size, seed)
    if coarse:  # many are equal
        lprobs, scores = lprobs.round(), scores.round()
    if spoilt is not None:
        chosen = torch.rand(lprobs.shape, generator=torch.Generator().manual_seed(seed)) < 0.7
        lprobs[chosen] = spoilt
    count = min(count, rows * size)
    values, indices = cpp.OPS.best_sums(lprobs, scores, count)
    expected = by_sorting(lprobs, scores, count)
    assert torch.equal(values, expected[0])
    assert torch.equal(indices, expected[1])


@compiled
def test_nothing_but_nan_gives_places_in_the_table():
    lprobs, scores = torch.full((1, 2, 50), math.nan), torch.zeros(1, 2)
    values, indices = cpp.OPS.best_sums(lprobs, scores, 4)
    assert values.tolist() == [[-math.inf] * 4]
    assert indices.tolist() == [[0, 1, 2, 3]]


@compiled
@settings(deadline=None)
@given(
    batch=st.integers(1, 30),
    rows=st.integers(1, 7),
    size=st.one_of(st.integers(2, 40), st.integers(200, 900)),
    count=st.integers(1, 9),
    seed=st.integers(0, 99),
    with_bias=st.booleans(),
    spoilt=st.booleans(),
    precision=st.sampled_from(["highest", "medium"]),
)
@torch.no_grad()
def test_next_words_are_the_best_sums_of_the_table(
    batch, rows, size, count, seed, with_bias, spoilt, precision
):
    """With penalties; rows of one sentence may be computed by several threads."""
    # Packed for many steps, fewer rows are rounded than in a single table.
    assume(precision == "highest" or not 16 <= batch * rows < 64)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch * rows, 20, generator=generator)
    weight, bias = torch.randn(size, 20, generator=generator), None
    if with_bias:
        bias = torch.randn(size, generator=generator)
    if spoilt:
        x[0, 3] = math.nan
    scores = -3 * torch.rand(batch, rows, generator=generator)
    count = min(count, rows * size)
    penalties = {0: math.inf, size // 2: 0.5, size - 1: -0.25}
    threads, before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision(precision)
    try:
        table = products.log_probs(x, weight, bias)
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
def test_of_equal_next_words_the_first():
    found = products.next_words(torch.zeros(50, 8), None, 60, 9)
    values, indices = found.best(torch.randn(60, 8), torch.zeros(20, 3), 4, {1: math.inf})
    torch.testing.assert_close(values, torch.full((20, 4), -math.log(50)))
    assert indices.tolist() == [[0, 2, 3, 4]] * 20


@compiled
def test_next_words_need_a_table_with_gradients_in_double_and_on_other_engines():
    weight = torch.zeros(50, 8)
    assert products.next_words(weight, None, 60, 9) is None
    with torch.no_grad():
        assert products.next_words(weight.double(), None, 60, 9) is None
        assert products.next_words(weight, None, 60, 9, engine="eager") is None


@compiled
@torch.no_grad()
def test_shapes_of_next_words_that_do_not_fit_are_errors():
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


@compiled
def test_shapes_that_do_not_fit_are_errors():
    lprobs, scores = table(2, 3, 50)
    best_sums = cpp.OPS.best_sums
    for arguments in ((lprobs, scores[:1], 2), (lprobs.mT, scores, 2), (lprobs, scores, 151)):
        with pytest.raises(RuntimeError):
            best_sums(*arguments)


@pytest.fixture
def searches(monkeypatch):
    """fairseq's own search and the one in one pass; and how often the latter was taken."""
    original, used = BeamSearch.step, []
    assert not install.patches_of(original)  # not in a program that is not fairseq's
    for search in (BeamSearch, DiverseBeamSearch):  # both are as they were afterwards
        monkeypatch.setattr(search, "step", search.step)
    install.apply(STEPS)
    install.apply(STEPS)
    ours, best = BeamSearch.step, beam_search.best_continuations
    monkeypatch.setattr(
        beam_search, "best_continuations", lambda *args: used.append(1) or best(*args)
    )
    search = BeamSearch(Dictionary())
    return lambda *args: (original(search, *args), ours(search, *args)), used


@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize("rows", [1, 2, 10])
@pytest.mark.parametrize("size", [2, 7, 500])
def test_candidates_are_those_of_fairseq(searches, step, rows, size, monkeypatch):
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)
    both, used = searches
    lprobs, last = table(4, rows, size)
    scores = torch.stack([-torch.ones_like(last)] * max(0, step - 1) + [last], dim=-1)
    for theirs, ours in zip(*both(step, lprobs, scores), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    for theirs, ours in zip(*both(step, lprobs, scores, None, None, 1), strict=True):
        assert torch.equal(ours, theirs)
    assert len(used) == (2 if step > 0 and recurrence.choose().name == "cpp" else 0)


@pytest.mark.parametrize("why", ["float64", "strided", "engine", "gradient", "nothing"])
def test_what_is_left_to_fairseq(searches, why, monkeypatch):
    both, used = searches
    lprobs, scores = table(2, 3, 50)
    if why == "float64":
        lprobs, scores = lprobs.double(), scores.double()
    elif why == "strided":
        lprobs = lprobs.repeat(2, 1, 1)[::2]
    elif why == "gradient":
        lprobs.requires_grad_()
    elif why == "nothing":  # but the pad
        lprobs, scores = lprobs[:, :1, :1].contiguous(), scores[:, :1]
    else:
        monkeypatch.setenv("CASRNN_ENGINE", "eager")
    for theirs, ours in zip(*both(1, lprobs, scores.unsqueeze(-1)), strict=True):
        assert torch.equal(ours, theirs)
    assert not used


def test_groups_of_sentences_that_are_not_the_first(monkeypatch):
    """fairseq looks overlaps up under the numbers that the sentences have in the data set."""
    original = DiverseBeamSearch.step
    assert not install.patches_of(original)
    monkeypatch.setattr(BeamSearch, "step", BeamSearch.step)
    monkeypatch.setattr(DiverseBeamSearch, "step", original)
    install.apply(STEPS)
    chosen = []
    for step, numbers in ((original, torch.arange(3)), (DiverseBeamSearch.step, [70, 4, 11])):
        search = DiverseBeamSearch(Dictionary(), 2, 0.5)
        numbers = torch.as_tensor(numbers)
        found = []
        for at in range(3):
            lprobs, scores = table(3, 4, 20, seed=at)
            lprobs[1, :, 7] += 30  # both groups of the second choose the same
            if at == 2:  # the first is finished
                lprobs, scores, numbers = lprobs[1:], scores[1:], numbers[1:]
                lprobs.fill_(-9.0)[..., [8, 9]] = torch.tensor([-2.0, -1.0])
            scores = scores.unsqueeze(-1).repeat(1, 1, max(at, 1))
            found += step(search, at, lprobs, scores, None, numbers)
        chosen.append(found)
    assert all(torch.equal(a, b) for a, b in zip(*chosen, strict=True))


@pytest.mark.full
def test_programs_of_fairseq_search_so():
    code = (
        "import sys; sys.argv[0] = 'fairseq-generate'; import fairseq_casrnn; "
        "fairseq_casrnn.register(); "
        "from fairseq.search import BeamSearch; "
        "from fairseq_casrnn.patches.install import patches_of; print(*patches_of(BeamSearch.step))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "patches.beam_search.step" in done.stdout
