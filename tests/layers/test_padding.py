"""Neither padding nor the other sequences of a batch change a result."""

import pytest
import torch
from helpers import (
    LENGTHS,
    B,
    I,
    T,
    as_tuple,
    assert_close,
    every_case,
    every_direction,
    every_engine,
    every_family,
    flat,
    gradients,
    rand,
    rand_state,
    weighted,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

from fairseq_casrnn.layers.sequences import reversal
from fairseq_casrnn.recurrence.ragged import padding_mask

pytestmark = pytest.mark.sampled(1)

EXACT = {"rtol": 1e-12, "atol": 1e-12}
some_lengths = st.lists(st.integers(1, 7), min_size=1, max_size=6)
few = settings(max_examples=6, deadline=None, derandomize=True)


def select(state, index):
    """Return the state of the sequences ``index``."""
    parts = tuple(s[:, index] for s in as_tuple(state))
    return parts if isinstance(state, tuple) else parts[0]


def padding_of(lengths, steps):
    return torch.tensor([[t >= n for n in lengths] for t in range(steps)])


@every_direction
@every_engine
def test_a_row_equals_a_batch_of_one(case, engine, bidirectional):
    layer = case.random(bidirectional=bidirectional, engine=engine)

    @few
    @given(some_lengths, st.integers(0, 3))
    def check(lengths, more):
        steps, batch = max(lengths) + more, len(lengths)
        x, state = rand(steps, batch, I, seed=steps), rand_state(layer, batch)
        output, *final = flat(layer(x, state, lengths))
        assert not output[padding_of(lengths, steps)].any()
        for b, n in enumerate(lengths):
            alone = flat(layer(x[:n, b : b + 1], select(state, [b])))
            row = [output[:n, b : b + 1], *(s[:, b : b + 1] for s in final)]
            assert_close(row, alone, EXACT)

    check()


@every_case
@every_engine
def test_gradients_are_the_sum_over_sequences(case, engine):
    """Gradients of a padded batch are the sum over its sequences, and zero at padding."""
    layer = case.random(bidirectional=True, engine=engine)
    x, state = rand(T + 1, B, I).requires_grad_(), rand_state(layer)
    leaves = [x, *(s.requires_grad_() for s in as_tuple(state)), *layer.parameters()]
    result = flat(layer(x, state, LENGTHS))
    weights = [rand(*t.shape, seed=30 + i) for i, t in enumerate(result)]
    together = gradients(sum((w * t).sum() for w, t in zip(weights, result, strict=True)), leaves)
    assert not together[0][padding_of(LENGTHS, T + 1)].any()
    total = 0
    for b, n in enumerate(LENGTHS):
        alone = flat(layer(x[:n, b : b + 1], select(state, [b])))
        parts = [weights[0][:n, b : b + 1], *(w[:, b : b + 1] for w in weights[1:])]
        total += sum((w * t).sum() for w, t in zip(parts, alone, strict=True))
    assert_close(together, gradients(total, leaves))


@every_case
@every_engine
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_values_at_padding_have_no_effect(case, engine, value):
    """Even NaN at padding changes neither a result nor a gradient."""
    layer = case.random(bidirectional=True, engine=engine)
    mask = padding_of(LENGTHS, T).unsqueeze(-1)
    results = []
    for fill in (0.0, value):
        x = rand(T, B, I).masked_fill(mask, fill).requires_grad_()
        state = rand_state(layer)
        result = flat(layer(x, state, LENGTHS))
        # The loss includes the padding, where the output is a constant zero.
        grads = gradients(weighted(result), [x, *layer.parameters()])
        results.append([*result, *grads])
    assert_close(*results, EXACT)
    assert all(part.isfinite().all() for part in results[1])


@every_direction
@every_engine
def test_order_of_the_batch_has_no_effect(case, engine, bidirectional):
    layer = case.random(bidirectional=bidirectional, engine=engine)
    x, state, lengths = rand(T, 4, I), rand_state(layer, 4), [2, 5, 1, 4]
    output, *final = flat(layer(x, state, lengths))
    order = [2, 0, 3, 1]
    permuted = flat(layer(x[:, order], select(state, order), [lengths[b] for b in order]))
    assert_close(permuted, [output[:, order], *(s[:, order] for s in final)], EXACT)


@every_family
def test_lengths_as_list_or_tensor(case):
    """Lengths may be a tuple or an integer tensor; full lengths equal no lengths."""
    layer = case.random(bidirectional=True)
    x = rand(T, B, I)
    expected = flat(layer(x, None, LENGTHS))
    for form in (tuple(LENGTHS), torch.tensor(LENGTHS), torch.tensor(LENGTHS, dtype=torch.int32)):
        assert_close(flat(layer(x, lengths=form)), expected)
    assert_close(flat(layer(x, lengths=[T] * B)), flat(layer(x)))
    given = torch.tensor(LENGTHS)
    layer(x, None, given)
    assert given.tolist() == LENGTHS


@every_family
def test_inputs_are_not_modified(case):
    layer = case.random(bidirectional=True)
    x, state = rand(T, B, I), rand_state(layer)
    before = [t.clone() for t in (x, *as_tuple(state))]
    layer(x, state, LENGTHS)
    assert_close([x, *as_tuple(state)], before)


@every_direction
@every_engine
def test_packed_sequences(case, engine, bidirectional):
    """A packed input gives a packed output and the states that lengths give."""
    layer = case.random(bidirectional=bidirectional, engine=engine)

    @few
    @given(some_lengths)
    def check(lengths):
        x, state = rand(max(lengths), len(lengths), I), rand_state(layer, len(lengths))
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, *final = flat(layer(packed, state))
        padded, *expected = flat(layer(x, state, lengths))
        assert_close(final, expected, EXACT)
        repacked = pack_padded_sequence(padded, lengths, enforce_sorted=False)
        assert_close([output.data], [repacked.data], EXACT)
        for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            assert torch.equal(getattr(output, name), getattr(packed, name))

    check()


@every_family
def test_sorted_packed_sequences(case):
    layer = case.random(bidirectional=True)
    lengths = sorted(LENGTHS, reverse=True)
    x = rand(T, B, I)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=True)
    assert packed.sorted_indices is None
    output, *final = flat(layer(packed))
    padded, *expected = flat(layer(x, None, lengths))
    assert_close(final, expected)
    assert_close([output.data], [pack_padded_sequence(padded, lengths).data])
    assert output.sorted_indices is None
    assert output.unsorted_indices is None


@every_family
def test_gradients_of_packed_sequences(case):
    layer = case.random(bidirectional=True)
    sequences = [rand(n, I, seed=n).requires_grad_() for n in LENGTHS]
    state = rand_state(layer)
    output, *final = flat(layer(pack_sequence(sequences, enforce_sorted=False), state))
    order = output.unsorted_indices
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(output)
    assert lengths.tolist() == LENGTHS
    assert order is not None
    grads = gradients(weighted([padded, *final]), [*sequences, *layer.parameters()])
    x = torch.nn.utils.rnn.pad_sequence(sequences)
    expected = gradients(
        weighted(flat(layer(x, state, LENGTHS))), [*sequences, *layer.parameters()]
    )
    assert_close(grads, expected)


@few
@given(some_lengths, st.integers(0, 3))
def test_reversal(lengths, more):
    """Sequences are reversed within their lengths; reversing twice is the identity."""
    steps = max(lengths) + more
    x = torch.arange(steps * len(lengths)).view(steps, len(lengths), 1)
    given_lengths = torch.tensor(lengths)
    reverse = reversal(given_lengths, steps)
    out = reverse(x)
    for b, n in enumerate(lengths):
        assert out[:n, b].flatten().tolist() == x[:n, b].flatten().tolist()[::-1]
        assert torch.equal(out[n:, b], x[n:, b])
    assert torch.equal(reverse(out), x)
    whole = reversal(torch.full_like(given_lengths, steps), steps)
    assert torch.equal(whole(x), reversal(None, steps)(x))
    assert torch.equal(padding_mask(given_lengths, steps), padding_of(lengths, steps))
