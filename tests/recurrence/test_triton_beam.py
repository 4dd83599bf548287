"""The choice among candidates of beam search in one kernel, compared with PyTorch operations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_casrnn.patches import beam_loop

from .test_triton import INTERPRETING
from .test_triton_compiling import compiled_only  # noqa: F401

EOS, SIZE = 2, 9


def candidates(batch, beam, count, seed):
    """Return candidates, many of which end a hypothesis or have a probability of 0."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high, *shape):
        return torch.randint(high, shape, generator=generator)

    found = -torch.rand(batch, count, generator=generator).sort(1).values
    found[draw(4, batch, count) == 0] = -math.inf
    words = EOS + draw(3, batch, count)
    ignored = draw(3, batch, beam) == 0
    indices = SIZE * draw(beam, batch, count) + words
    return found, indices, ignored, draw(beam, batch), EOS, SIZE


@pytest.mark.skipif(not INTERPRETING, reason="for Triton's interpreter")
@settings(deadline=None, max_examples=50)
@given(
    batch=st.integers(1, 4),
    beam=st.integers(1, 9),
    more=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_kernel_equals_pytorch(batch, beam, more, seed):
    from fairseq_casrnn.recurrence.triton import beam as triton_beam

    inputs = candidates(batch, beam, beam + min(more, beam), seed)
    ours, theirs = triton_beam.choose(*inputs), beam_loop.select_candidates(*inputs)
    assert len(ours) == len(theirs) == 7
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_known_choice():
    """Of four candidates for two hypotheses, the first ends; the third is too low to end one."""
    found = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    indices = torch.tensor([[EOS + SIZE, 7, EOS, 8 + SIZE]])
    ended, rows, parents, tokens, scores, ignored, collected = beam_loop.select_candidates(
        found, indices, torch.zeros(1, 2, dtype=torch.bool), torch.tensor([1]), EOS, SIZE
    )
    assert ended.tolist() == [[True, False]]
    assert rows.tolist() == [[1, 0]]
    assert parents.tolist() == [[0, 1]]
    assert tokens.tolist() == [[7, 8]]
    assert scores.tolist() == [[-2.0, -4.0]]
    assert ignored.tolist() == [[False, False]]
    assert collected.tolist() == [2]


def test_one_kernel_for_all_batches(compiled_only):  # noqa: F811
    from fairseq_casrnn.recurrence.triton import beam as triton_beam

    for batch in (1, 3, 16):
        triton_beam.choose(*candidates(batch, 5, 10, 0))
    assert len({id(kernel) for kernel in compiled_only}) == 1
    assert ".target sm_90" in compiled_only[0].asm["ptx"]


@pytest.mark.skipif(not INTERPRETING, reason="for Triton's interpreter")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("size", [5, 3000])
def test_next_words_are_the_best_sums(size, dtype):
    """They are compared with fairseq's table; some words are penalised or forbidden."""
    from fairseq_casrnn.recurrence.products import next_words

    torch.manual_seed(size)
    weight, bias = torch.randn(size, 6).to(dtype), torch.randn(size).to(dtype)
    x, scores = torch.randn(6, 6).to(dtype), -torch.rand(2, 3)
    x[4] = math.nan
    penalties = {1: math.inf, 3: 0.5}
    with torch.no_grad():
        words = next_words(weight, bias, 6, 9, engine="triton")
        found, indices = words.best(x, scores, 4, penalties)
        logits = torch.nn.functional.linear(x, weight, bias)
        table = logits.log_softmax(1, dtype=torch.float32)
    table[4] = -math.inf
    for word, penalty in penalties.items():
        table[:, word] -= penalty
    sums = (table.view(2, 3, size) + scores.unsqueeze(2)).view(2, -1)
    torch.testing.assert_close(found, sums.topk(4).values)
    torch.testing.assert_close(found, sums.gather(1, indices))
    assert found.dtype == torch.float32


def test_one_kernel_for_all_penalties(compiled_only):  # noqa: F811
    from fairseq_casrnn.recurrence.triton import beam as triton_beam

    for rows, penalties in ((1, {1: math.inf}), (16, {3: 0.0, 1: math.inf, 2: math.inf})):
        logits = torch.zeros(rows, 40)
        triton_beam.add_scores(logits, torch.zeros(rows), logits, penalties)
    assert len({id(kernel) for kernel in compiled_only}) == 1
