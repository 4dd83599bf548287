"""Beam search that builds its hypotheses at the end, compared with fairseq's own loop."""

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from helpers import FAMILIES, SINGLE, assert_close
from models.common import TARGET as SIZE
from models.common import dictionary, random_model, source

from fairseq_casrnn import recurrence
from fairseq_casrnn.patches import beam_loop
from fairseq_casrnn.patches.install import patches_of

TARGET = dictionary(SIZE)
CAS = next(case for case in FAMILIES if case.name == "cas_lstm")
GRU = next(case for case in FAMILIES if case.name == "stacked_gru")
FAIRSEQ_GENERATE = SequenceGenerator._generate.__wrapped__
PARTS = ("tokens", "score", "positional_scores", "attention", "alignment")


@pytest.fixture
def own_searches(monkeypatch):
    """Records each search by this package's loop."""
    calls, original = [], beam_loop.build_hypotheses
    monkeypatch.setattr(
        beam_loop, "build_hypotheses", lambda *args: calls.append(1) or original(*args)
    )
    return calls


def model_of(case=CAS, seed=0, spread=3.0):
    """Return a model whose probabilities are so uneven that hypotheses end at all steps."""
    model = random_model(case, "sizes").float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        model.decoder.vocabulary[0].mul_(spread)
    return model


def batch(rows=7, seed=0):
    tokens = torch.randint(4, 9, (rows, 5), generator=torch.Generator().manual_seed(seed))
    tokens[1, :3] = tokens[4, :2] = source().new_tensor(1)  # padding on the left
    net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(1).sum(1)}
    return {"net_input": {**net_input, "prev_output_tokens": tokens}, "id": torch.arange(rows)}


def both(models, sample, **options):
    """Return the hypotheses of fairseq's loop and of this package's."""
    with torch.no_grad():
        return [
            generate(SequenceGenerator(models, TARGET, **options), sample)
            for generate in (FAIRSEQ_GENERATE, SequenceGenerator._generate)
        ]


def assert_equal_hypotheses(theirs, ours):
    assert len(theirs) == len(ours)
    for expected, found in zip(theirs, ours, strict=True):
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            assert set(one) == set(other) == set(PARTS)
            assert torch.equal(one["tokens"], other["tokens"])
            for part in PARTS:
                assert one[part].shape == other[part].shape
                assert one[part].dtype == other[part].dtype
                assert_close([other[part]], [one[part]], SINGLE)


OPTIONS = {
    "plain": {},
    "greedy": {"beam_size": 1},
    "narrow": {"beam_size": 2, "max_len_b": 3},
    "one step": {"min_len": 0, "max_len_b": 0},
    "unnormalised": {"normalize_scores": False},
    "length penalty": {"len_penalty": 0.3},
    "unknown words": {"unk_penalty": 2.5},
    "wanted unknown words": {"unk_penalty": -4.0},
    "at least": {"min_len": 4, "max_len_b": 4},
    "by the source": {"max_len_a": 1.4, "max_len_b": 1},
    "hot": {"temperature": 2.0},
    "all words": {"beam_size": 500},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_hypotheses_equal_fairseqs(own_searches, name, seed):
    options = {"beam_size": 4, "max_len_b": 12} | OPTIONS[name]
    theirs, ours = both([model_of(seed=seed)], batch(seed=seed), **options)
    assert own_searches
    assert_equal_hypotheses(theirs, ours)
    if (name, seed) == ("plain", 0):  # make sure that some sentences finish early
        ends = {max(len(h["tokens"]) for h in hypotheses) for hypotheses in ours}
        assert len(ends) > 1


@pytest.mark.parametrize(
    ("name", "one_pass"),
    [("plain", True), ("greedy", True), ("at least", True), ("hot", False), ("replaced", False)],
)
def test_no_table_of_log_probabilities_is_made(name, one_pass, monkeypatch):
    """If fairseq's function was replaced, the replacement gets the table, which it may change."""
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)
    forward, tables = EnsembleModel.forward_decoder, []

    def spy(self, *args, **kwargs):
        tables.append(1)
        return forward(self, *args, **kwargs)

    if name != "replaced":
        spy.__module__ = forward.__module__
    monkeypatch.setattr(EnsembleModel, "forward_decoder", spy)
    options = {"beam_size": 4, "max_len_b": 40} | OPTIONS.get(name, {})
    with torch.no_grad():
        SequenceGenerator([model_of()], TARGET, **options)._generate(batch())
    # The last step has a table if some sentence is still unfinished at the longest length.
    assert len(tables) <= 1 if one_pass and "cpp" in recurrence.installed() else len(tables) > 1


@pytest.mark.parametrize("kept", [0, 3, 7])
def test_finished_sentences_may_stay_in_the_batch(own_searches, kept, monkeypatch):
    monkeypatch.setattr(beam_loop, "max_finished_kept", lambda *_: kept)
    for seed in range(4):
        theirs, ours = both([model_of(seed=seed)], batch(seed=seed), beam_size=3, max_len_b=12)
        assert_equal_hypotheses(theirs, ours)
    assert len(own_searches) == 4


@pytest.mark.parametrize("kept", [0, 3])
def test_count_of_unfinished_sentences_may_be_a_step_late(own_searches, kept, monkeypatch):
    """On a GPU the count arrives late, so the search takes one step more than necessary."""
    counts = []

    def late(unfinished):
        counts.append(int(unfinished.sum()))
        return counts[-2] if len(counts) > 1 else len(unfinished)

    monkeypatch.setattr(beam_loop, "count", late)
    monkeypatch.setattr(beam_loop, "max_finished_kept", lambda *_: kept)
    for seed in range(4):
        del counts[:]
        theirs, ours = both([model_of(seed=seed)], batch(seed=seed), beam_size=3, max_len_b=12)
        assert_equal_hypotheses(theirs, ours)
        assert counts
    assert len(own_searches) == 4


def test_several_models(own_searches):
    theirs, ours = both([model_of(), model_of(GRU, seed=1)], batch(), beam_size=3, max_len_b=9)
    assert own_searches
    assert_equal_hypotheses(theirs, ours)


def test_another_first_token(own_searches):
    with torch.no_grad():
        generators = [SequenceGenerator([model_of()], TARGET, max_len_b=9) for _ in range(2)]
        theirs, ours = (
            generate(generator, batch(), bos_token=5)
            for generate, generator in zip(
                (FAIRSEQ_GENERATE, SequenceGenerator._generate), generators, strict=True
            )
        )
    assert own_searches
    assert_equal_hypotheses(theirs, ours)


def test_nan_is_never_chosen(own_searches, monkeypatch):
    forward = EnsembleModel.forward_decoder

    def with_nan(self, *args, **kwargs):
        lprobs, attention = forward(self, *args, **kwargs)
        lprobs[:, 6::3] = torch.nan
        return lprobs, attention

    monkeypatch.setattr(EnsembleModel, "forward_decoder", with_nan)
    theirs, ours = both([model_of()], batch(), beam_size=3, max_len_b=9)
    assert own_searches
    assert_equal_hypotheses(theirs, ours)


def test_a_model_without_any_finite_probability(own_searches):
    model = model_of()
    with torch.no_grad():
        model.decoder.vocabulary[1][6] = torch.nan
    with torch.no_grad(), pytest.raises(AssertionError, match="9 < 9"):  # fairseq's assertion
        SequenceGenerator([model], TARGET, beam_size=3, max_len_b=9)._generate(batch())


@pytest.mark.parametrize("why", ["prefix", "search", "ngrams", "suppressed", "length"])
def test_options_that_use_fairseqs_loop(own_searches, why):
    options, given = {"beam_size": 3, "max_len_b": 9}, {}
    if why == "prefix":
        given["prefix_tokens"] = torch.full((7, 2), 6)
    elif why == "search":
        options["search_strategy"] = search.DiverseBeamSearch(TARGET, 3, 0.5)
    elif why == "ngrams":
        options["no_repeat_ngram_size"] = 2
    elif why == "suppressed":
        options["tokens_to_suppress"] = (TARGET.symbols[6],)
    else:
        options["match_source_len"] = True
    generator = SequenceGenerator([model_of()], TARGET, **options)
    with torch.no_grad():
        assert len(generator._generate(batch(), **given)) == 7
    assert not own_searches


def test_min_len_above_max_len_is_refused_by_fairseq(own_searches):
    with pytest.raises(AssertionError, match="min_len"):
        both([model_of()], batch(), min_len=5, max_len_b=2)
    assert not own_searches


def test_only_this_patch_changes_generate():
    pieces = [patch.hook for patch in patches_of(SequenceGenerator._generate)]
    assert pieces == ["patches.beam_loop.generate"]
