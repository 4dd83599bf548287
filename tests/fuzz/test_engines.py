"""Every engine computes what the reference does, in random settings.

Ordinary tests draw the same 50 settings for each engine; ``make fuzz`` draws 2,000 random ones.
"""

import pytest
import torch
from helpers import (
    CASES,
    ENGINES,
    assert_close,
    flat,
    gradients,
    rand,
    rand_state,
    weighted,
)
from hypothesis import given
from hypothesis import strategies as st

from .profile import PROFILE

# In single precision, elements may cancel to nearly zero, so norms of tensors are compared.
SINGLE_NORM = 1e-4


@st.composite
def problem(draw) -> dict:
    """A layer and a batch for it; sizes are below and above the block sizes of kernels."""
    case = draw(st.sampled_from(CASES))
    steps, batch = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    lengths = st.lists(st.integers(1, steps), min_size=batch, max_size=batch)
    return {
        "case": case,
        "sizes": (draw(st.integers(1, 9)), draw(st.integers(1, 37)), draw(st.integers(1, 3))),
        "shape": (steps, batch),
        "lengths": draw(st.none() | lengths),
        "has_state": draw(st.booleans()),
        "dtype": draw(st.sampled_from([torch.float64, torch.float32])),
        "options": {
            "bidirectional": draw(st.sampled_from(case.directions)),
            "dropout": draw(st.sampled_from([0.0, 0.4])),
            "bias": draw(st.booleans()),
        },
        "locked": draw(st.booleans()),
        "training": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }


def results(engine, case, sizes, shape, lengths, has_state, dtype, options, locked, training, seed):
    """Outputs, final states and all gradients."""
    layer = case.random(*sizes, engine=engine, dtype=dtype, seed=seed, **options)
    layer.train(training).locked_dropout = locked
    x = rand(*shape, sizes[0], seed=seed, dtype=dtype).requires_grad_()
    torch.manual_seed(seed)  # seed of the dropout
    result = flat(layer(x, rand_state(layer, shape[1]) if has_state else None, lengths))
    return [*result, *gradients(weighted(result), [x, *layer.parameters()])]


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "reference"])
def test_random_settings(engine):
    @PROFILE
    @given(problem())
    def compare(drawn):
        # Hard routing depends on the last digit of a score.
        hard = drawn["case"].name == "second_order_lstm" and not drawn["training"]
        drawn = {**drawn, "dtype": torch.float64} if hard else drawn
        found, expected = results(engine, **drawn), results("reference", **drawn)
        if drawn["dtype"] == torch.float64:
            assert_close(found, expected)
            return
        for a, e in zip(found, expected, strict=True):
            assert (a - e).norm() <= SINGLE_NORM * e.norm()

    compare()
