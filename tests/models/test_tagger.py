"""Taggers: padding, spelling, boundaries, options, and the CRF against enumeration."""

import itertools
import math

import pytest
import torch
from helpers import assert_close, rand

from fairseq_casrnn.data.tag_constraints import constraints, violations
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.tagger_parts import CharCNN, TagCRF

from .common import EOS, PAD
from .sentences import LENGTHS
from .taggers import NAMES, TAGS, batch, make_task, spelling, tagger

WORDS = [length - 1 for length in LENGTHS]  # without </s>; the last sentence is empty


@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_padding_and_order(name):
    model = tagger(name).eval()
    rows = batch()
    letters = spelling(rows)
    together, loss = model(rows, letters)
    assert loss is None
    assert together.shape == (3, max(WORDS), len(TAGS))
    assert together.isfinite().all()
    for b, length in enumerate(WORDS):
        width = int(letters[b, :length].ne(PAD).sum(-1).max()) if length else 1
        alone, _ = model(rows[b : b + 1, : length + 1], letters[b : b + 1, :length, :width])
        assert alone.shape[1] == max(length, 1)
        assert_close([together[b, :length]], [alone[0, :length]])
    order = torch.tensor([2, 0, 1])
    assert_close([model(rows[order], letters[order])[0]], [together[order]])
    wider = torch.cat([rows, rows.new_full((3, 2), PAD)], dim=1)
    longer = torch.nn.functional.pad(letters, (0, 3, 0, 2), value=PAD)
    found, _ = model(wider, longer)
    for b, length in enumerate(WORDS):
        assert_close([found[b, :length]], [together[b, :length]])


@pytest.mark.parametrize("name", NAMES)
def test_every_word_sees_the_sentence_and_its_spelling(name):
    """Changing a later word, or its letters, changes the first word's scores."""
    model = tagger(name, **({} if "state" in name or "shortcut" in name else both())).eval()
    rows = batch()
    letters = spelling(rows)
    before, _ = model(rows, letters)
    other = rows.clone()
    other[1, 2] = 4 + (other[1, 2] - 3) % 10
    assert not torch.allclose(model(other, letters)[0][1, 0], before[1, 0])
    char_ids = letters.clone()
    char_ids[1, 2, 0] = 4 + (char_ids[1, 2, 0] - 3) % 5
    assert not torch.allclose(model(rows, char_ids)[0][1, 0], before[1, 0])
    assert_close([model(other, char_ids)[0][0]], [before[0]])


def both():
    return {"encoder_bidirectional": True}


def test_a_tagger_without_characters():
    model = tagger("cas_lstm", make_task(spelled=False), char_filters=0).eval()
    rows = batch()
    found, _ = model(rows)
    assert found.shape == (3, max(WORDS), len(TAGS))
    assert model.encoder.spelling is None


def test_boundaries():
    """Only the sentence-state LSTM reads <s> and </s> around the words."""
    rows = batch()
    for name, options, first, last in (
        ("sentence_state_lstm", {}, 0, EOS),
        ("sentence_state_lstm", {"no_boundaries": True}, None, None),
        ("stacked_lstm", {}, None, None),
    ):
        model = tagger(name, **options).eval()
        seen = {}
        model.encoder.body.register_forward_pre_hook(
            lambda module, args, seen=seen: seen.update(lengths=args[1], tokens=args[2])
        )
        model(rows, spelling(rows))
        words = rows[1, : WORDS[1]].tolist()
        tokens = seen["tokens"][: seen["lengths"][1], 1].tolist()
        assert tokens == ([first, *words, last] if first is not None else words)


def test_boundaries_do_not_shift_words_and_spelling():
    """<s> and </s>, which have no spelling, get features of zero, and no emissions."""
    model, seen = tagger("sentence_state_lstm").eval(), {}
    model.encoder.body.register_forward_hook(
        lambda module, args, output: seen.update(read=args[0], states=output[0])
    )
    rows = batch()
    letters = spelling(rows)
    states = model.encoder(rows, letters)
    embedded, features = model.encoder.embed_tokens(rows), model.encoder.spelling(letters)
    size = embedded.size(-1)
    for b, length in enumerate(WORDS):
        read, words = seen["read"][:, b], slice(1, 1 + length)
        assert_close([read[words, :size]], [embedded[b, :length]])
        assert_close([read[words, size:]], [features[b, :length]])
        assert not read[[0, 1 + length], size:].any()
        assert_close([states[b, :length]], [seen["states"][words, b]])


@pytest.mark.parametrize("name", ["stacked_lstm", "sentence_state_lstm"])
def test_a_padding_symbol_in_the_text(name):
    """A padding symbol stands for no word, and does not end the sentence."""
    model = tagger(name).eval()
    rows = batch()[1:2].clone()
    letters = spelling(rows)
    rows[0, 1:3] = PAD
    changed = rows.clone()
    changed[0, -2] = 4 + (rows[0, -2] - 3) % 5
    last = WORDS[1] - 1
    before, after = model(rows, letters)[0][0, last], model(changed, letters)[0][0, last]
    assert (before - after).abs().max() > 1e-6
    wider = torch.cat([rows, rows.new_full((1, 2), PAD)], dim=1)
    found, _ = model(wider, torch.nn.functional.pad(letters, (0, 0, 0, 2), value=PAD))
    assert_close([found[:, : last + 1]], [model(rows, letters)[0]])


def test_options_of_the_embeddings(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("w5 " + " ".join(["1"] * 8) + "\n")
    options = {"encoder_embed_path": str(path), "encoder_freeze_embed": True}
    weight = tagger("cas_lstm", encoder_embed_range=0.5, **options).encoder.embed_tokens.weight
    assert weight[5].eq(1).all()
    assert 0.4 < weight[6:].abs().max() <= 0.5
    assert not weight.requires_grad


def test_temperature_is_annealed():
    model = tagger("second_order_lstm", num_cells=2)
    model.set_epoch(3)
    assert model.encoder.body.rnn.temperature.item() == pytest.approx(0.81)


def test_emissions_of_half_precision_become_single():
    rows = batch()
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        assert tagger("stacked_lstm").to(dtype)(rows, spelling(rows))[0].dtype == expected


def enumerate_tags(crf, emissions):
    """Return the log-probability of every sequence of tags for one sentence (T, K)."""
    found = {}
    for tags in itertools.product(range(emissions.size(1)), repeat=len(emissions)):
        score = crf.start_transitions[tags[0]] + crf.end_transitions[tags[-1]]
        score = score + sum(emissions[t, tag] for t, tag in enumerate(tags))
        found[tags] = score + sum(crf.transitions[a, b] for a, b in itertools.pairwise(tags))
    total = torch.logsumexp(torch.stack(list(found.values())), 0)
    return {tags: score - total for tags, score in found.items()}


@pytest.fixture
def crf():
    torch.manual_seed(0)
    crf = TagCRF(3).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def test_crf_against_all_sequences(crf):
    emissions = rand(4, 4, 3)
    lengths = torch.tensor([4, 0, 2, 1])
    target = torch.tensor([[0, 2, 1, 1], [-1] * 4, [2, 2, -1, -1], [1, -1, -1, -1]])
    every = [
        enumerate_tags(crf, row[:length]) if length else None
        for row, length in zip(emissions, lengths.tolist(), strict=True)
    ]
    wanted = -sum(
        every[b][tuple(target[b, :length].tolist())]
        for b, length in enumerate(lengths.tolist())
        if length
    )
    assert_close([crf.loss(emissions, target)], [wanted])
    best = [list(max(found, key=found.get)) if found else [] for found in every]
    assert crf.best(emissions, lengths) == best


def test_joint_probabilities_of_tags(crf):
    model = tagger("stacked_lstm")
    emissions, tags = rand(2, 4, 3), [[0, 2, 1, 1], [2, 0]]
    by_sentence = zip(emissions, tags, strict=True)
    every = [enumerate_tags(crf, row[: len(chosen)]) for row, chosen in by_sentence]
    wanted = [found[tuple(row)].exp().item() for found, row in zip(every, tags, strict=True)]
    model.crf = crf
    assert model.probabilities(emissions, tags) == pytest.approx(wanted)
    model.crf = None
    by_word = emissions.softmax(-1)
    wanted = [
        math.prod(by_word[b, t, k].item() for t, k in enumerate(r)) for b, r in enumerate(tags)
    ]
    assert model.probabilities(emissions, tags) == pytest.approx(wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_crf_with_short_parameters(crf, dtype):
    """Sums are computed in single precision; gradients have the type of the parameters."""
    short = TagCRF(3).to(dtype)
    short.load_state_dict(crf.state_dict())
    exact = TagCRF(3)
    exact.load_state_dict(short.state_dict())
    emissions, target = rand(2, 300, 3).float(), torch.arange(600).view(2, 300) % 3
    losses = [each.loss(emissions, target) for each in (short, exact)]
    torch.testing.assert_close(*losses)
    gradients = [
        torch.autograd.grad(loss, each.transitions)[0]
        for loss, each in zip(losses, (short, exact), strict=True)
    ]
    torch.testing.assert_close(gradients[0].float(), gradients[1], rtol=1e-2, atol=1e-3)


def test_crf_of_sentences_without_words(crf):
    emissions = rand(2, 1, 3).requires_grad_()
    loss = crf.loss(emissions, torch.full((2, 1), -1))
    loss.backward()
    assert loss.item() == 0
    assert crf.best(emissions, torch.zeros(2).long()) == [[], []]


def test_best_tags_under_constraints():
    """The best tags are the most probable valid sequence, not the most probable of all."""
    torch.manual_seed(1)
    classes = ("O", "B-X", "I-X", "E-X", "S-X")
    crf, rules = TagCRF(5).double(), constraints(classes)
    emissions, lengths = rand(6, 4, 5) * 3, [4, 4, 3, 2, 1, 0]
    before = {name: value.clone() for name, value in crf.state_dict().items()}
    wanted, free = [], []
    for row, length in zip(emissions, lengths, strict=True):
        every = enumerate_tags(crf, row[:length]) if length else {(): 0}
        allowed = [tags for tags in every if not violations(rules, torch.tensor(tags).long())]
        wanted.append(list(max(allowed, key=every.get)))
        free.append(list(max(every, key=every.get)))
    assert crf.best(emissions, torch.tensor(lengths), rules) == wanted
    assert crf.best(emissions, torch.tensor(lengths)) == free
    assert sum(a != b for a, b in zip(wanted, free, strict=True)) >= 3
    assert all(value.equal(before[name]) for name, value in crf.state_dict().items())
    assert crf.half().best(emissions.float(), torch.tensor(lengths), rules) == wanted


@pytest.mark.parametrize("constrained", [False, True])
def test_marginals_against_all_sequences(constrained):
    torch.manual_seed(1)
    rules = constraints(("O", "B-X", "I-X", "E-X", "S-X"))
    crf, emissions, lengths = TagCRF(5).double(), rand(3, 3, 5), [3, 1, 0]
    found = crf.marginals(emissions, torch.tensor(lengths), rules if constrained else None)
    for row, length, ours in zip(emissions, lengths, found, strict=True):
        wanted = torch.zeros(3, 5).double()
        every = enumerate_tags(crf, row[:length]) if length else {}
        for tags, score in every.items():
            if not constrained or not violations(rules, torch.tensor(tags)):
                wanted[torch.arange(length), list(tags)] += score.detach().exp()
        wanted[:length] /= wanted[:length].sum(-1, keepdim=True)
        assert_close([ours], [wanted])


def test_a_sentence_without_valid_tags():
    """A single word where spans need two gets the tag with the fewest violations."""
    crf, rules = TagCRF(2), constraints(("B-X", "E-X"))
    emissions = torch.tensor([[[0.0, 3.0], [0.0, 3.0]]])
    assert crf.best(emissions, torch.tensor([2]), rules) == [[0, 1]]
    assert crf.best(emissions, torch.tensor([1]), rules) == [[1]]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        crf = TagCRF(2).to(dtype)
        for part in crf.parameters():
            part.data.zero_()
        crf.start_transitions.data[1] = 2.0  # the penalty must not absorb it
        assert crf.best(torch.zeros(1, 1, 2), torch.tensor([1]), rules) == [[1]]


def test_crf_learns_transitions():
    """Without emissions, the transitions learn an alternating chain."""
    torch.manual_seed(0)
    crf = TagCRF(2)
    optimizer = torch.optim.SGD(crf.parameters(), 0.5)
    zero, target = torch.zeros(1, 5, 2), torch.tensor([[0, 1, 0, 1, 0]])
    for _ in range(20):
        optimizer.zero_grad()
        crf.loss(zero, target).backward()
        optimizer.step()
    assert crf.best(zero, torch.tensor([5])) == target.tolist()


def test_softmax_by_hand():
    model = tagger("stacked_lstm", tagger_output="softmax").eval()
    assert model.crf is None
    rows = batch()
    target = torch.full((3, max(WORDS)), -1)
    target[0, :3] = torch.tensor([1, 0, 3])
    emissions, loss = model(rows, spelling(rows), target)
    p = emissions[0].log_softmax(-1)
    assert_close([loss], [-(p[0, 1] + p[1, 0] + p[2, 3])])
    best = model.best(emissions, torch.tensor(WORDS))
    assert best == [emissions[b, :n].argmax(-1).tolist() for b, n in enumerate(WORDS)]


@pytest.mark.parametrize("output", ["crf", "softmax"])
def test_gradients_reach_all_parameters(output):
    model = tagger("cas_lstm", tagger_output=output, **both())
    rows = batch()
    target = torch.tensor([[0, 1, 2, -1, -1], [3, 2, 1, 0, 1], [-1] * 5])
    model(rows, spelling(rows), target)[1].backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # No layer is below the first, and the model reads no weights of absent cells.
    assert without == []


def test_spelling_by_hand():
    """A feature is the maximum over the letters of a filter of width 3.

    Zeros surround the word, whatever the embedding of padding is.
    """
    layer = CharCNN(9, PAD, 1, 1).double()
    with torch.no_grad():
        layer.embed.weight[PAD] = 6.0
        layer.embed.weight[4:, 0] = torch.tensor([1.0, 2.0, 3.0, -4.0, -5.0])
        layer.convolve.weight.copy_(torch.tensor([[[10.0, 1.0, 0.1]]]))
        layer.convolve.bias.fill_(0.5)
    words = torch.tensor([[[4, 5, 6], [7, PAD, PAD], [PAD, PAD, PAD]]])
    # 0·10 + 1 + .2, 10 + 2 + .3, 20 + 3; then a single letter, -4; then no word
    assert_close([layer(words)], [torch.tensor([[[23.5], [-3.5], [0.0]]]).double()])


def test_characters_start_in_their_range():
    weight = CharCNN(200, PAD, 12, 1).embed.weight  # (3 / 12) ** 0.5 = 0.5
    assert 0.4 < weight.abs().max() <= 0.5
    assert not weight[PAD].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"char_filters": -1}, "--char-filters is -1; it must be at least 0"),
        ({"char_embed_dim": 0}, "--char-embed-dim is 0; it must be at least 1"),
        ({"tagger_output": "viterbi"}, "--tagger-output is 'viterbi'; use crf or softmax"),
        ({"tagger_dropout": 2.0}, r"--tagger-dropout is 2.0; it must lie in \[0, 1\]"),
        ({"encoder_embed_range": 0.0}, "--encoder-embed-range is 0.0; it must be greater"),
        ({"encoder_interleaved": True}, "cas_lstm reads the cell of the layer below"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(UserError, match=message):
        tagger("cas_lstm", **options)


def test_incompatible_tasks():
    with pytest.raises(UserError, match="--char-filters needs the words' characters, but the"):
        tagger("cas_lstm", make_task(spelled=False))
    task = make_task()
    del task.characters
    with pytest.raises(UserError, match="taggers need --task sequence_tagging"):
        tagger("cas_lstm", task)


def test_marginals_without_crf():
    """Each word's tags are independent: 1/4 and 3/4 for scores log 1 and log 3."""
    model = tagger("stacked_lstm", tagger_output="softmax").eval()
    emissions = torch.tensor([[[1, 3]]]).double().log()
    wanted = torch.tensor([[[0.25, 0.75]]], dtype=torch.float64)
    assert_close([model.marginals(emissions, torch.tensor([1]))], [wanted])
