"""Decoding step by step, with hypotheses reordered as in beam search, equals decoding at once."""

import copy

import pytest
import torch
from helpers import ENGINES, assert_close, every_case, every_family
from helpers import FAMILIES as FAMILY_CASES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_casrnn.errors import UserError

from .common import EOS, TARGET, random_model, source

pytestmark = pytest.mark.sampled(1)

SENTENCES = 3


@st.composite
def searches(draw):
    """Steps of a search: for each, the kept hypotheses (any number) and their next words."""
    steps, size = [], SENTENCES
    for _ in range(draw(st.integers(1, 5))):
        order = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=6))
        size = len(order)
        words = draw(st.lists(st.integers(4, TARGET - 1), min_size=size, max_size=size))
        steps.append((torch.tensor(order), torch.tensor(words)))
    return steps


def assert_incremental_equals_full(model, search):
    src = source()
    encoded = model.encoder(src)
    state = {}
    prev = torch.full((SENTENCES, 1), EOS)
    sentences = torch.arange(SENTENCES)
    out, extra = model.decoder(prev, encoded, incremental_state=state)
    for order, words in search:
        model.decoder.reorder_incremental_state_scripting(state, order)
        encoded = model.encoder.reorder_encoder_out(encoded, order)
        sentences = sentences[order]
        prev = torch.cat([prev[order], words.unsqueeze(1)], dim=1)
        out, extra = model.decoder(prev, encoded, incremental_state=state)
        full, full_extra = model.decoder(prev, model.encoder(src[sentences]))
        assert_close([out, extra["attn"][0]], [full[:, -1:], full_extra["attn"][0][:, -1:]])


@every_case
@pytest.mark.parametrize(
    "variant", ["sizes", "no-input-feed", "bidirectional", "deeper-decoder", "adaptive-equal"]
)
def test_incremental_equals_full(case, variant):
    model = random_model(case, variant, dropout=0.5).eval()

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(searches())
    def check(search):
        with torch.no_grad():
            assert_incremental_equals_full(model, search)

    check()


@every_family
@pytest.mark.parametrize("engine", ["reference", "eager"])
def test_without_compiled_steps(case, engine):
    model = random_model(case, "deeper-decoder").eval()
    model.decoder.rnn.engine = engine
    words = torch.tensor([5, 6, 7, 8])
    search = [(torch.tensor([2, 0, 1, 0]), words), (torch.tensor([3, 1, 1, 0]), words.flip(0))]
    with torch.no_grad():
        assert_incremental_equals_full(model, search)


def test_two_searches_from_one_state():
    model = random_model(FAMILY_CASES[0], "deeper-decoder").eval()
    encoded, prev = model.encoder(source()), torch.tensor([[EOS, 5], [EOS, 9], [EOS, 7]])
    with torch.no_grad():
        expected = model.decoder(prev, encoded)[0][:, 1:]
        for engine in ENGINES:
            model.decoder.rnn.engine = engine
            state = {}
            model.decoder(prev[:, :1], encoded, incremental_state=state)
            in_place = any("steps" in part for part in state.values())
            assert in_place == (engine in ("cpp", "triton"))
            branch = dict(state)
            first, _ = model.decoder(prev, encoded, incremental_state=state)
            assert_close([first], [expected])
            if in_place:
                with pytest.raises(UserError, match="cannot continue from two copies of it"):
                    model.decoder(prev, encoded, incremental_state=branch)
                with pytest.raises(UserError, match="cannot continue from two copies of it"):
                    model.decoder.reorder_incremental_state(branch, torch.tensor([0, 0, 1]))
                with pytest.raises(UserError, match="cannot continue from two copies of it"):
                    copy.deepcopy(branch)
            else:
                second, _ = model.decoder(prev, encoded, incremental_state=copy.deepcopy(branch))
                assert_close([second], [expected])


@every_case
def test_changing_an_output_in_place_does_not_change_the_search(case):
    """fairseq's generator divides the logits by its --temperature in place."""
    for variant in ("plain", "adaptive-equal"):
        model = random_model(case, variant).eval()
        encoded, prev = model.encoder(source()), torch.tensor([[EOS, 5, 6]] * SENTENCES)
        with torch.no_grad():
            expected = model.decoder(prev, encoded)[0]
            state, outputs = {}, []
            for t in range(1, 4):
                out, extra = model.decoder(prev[:, :t], encoded, incremental_state=state)
                outputs.append(out.clone())
                out.div_(3.0)
                extra["attn"][0].zero_()
        assert_close([torch.cat(outputs, dim=1)], [expected])
