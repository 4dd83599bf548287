"""The models <cell>_lm: sizes, named architectures, state, sampling, errors."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator

from fairseq_casrnn.cells import FAMILIES as CELLS
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import stack
from fairseq_casrnn.layers.dropout import dropout
from fairseq_casrnn.layers.state import state_parts
from fairseq_casrnn.models.language_decoder import CarriedState

from .common import SIZE, build, make_task, random_model, random_tokens

every_cell = pytest.mark.parametrize("cell", CELLS)
VARIANTS = {
    "untied": {},
    "tied": {"share_decoder_input_output_embed": True},
    "tied-other-size": {"share_decoder_input_output_embed": True, "decoder_hidden_size": 8},
    "projected": {"decoder_out_embed_dim": 7},
    "adaptive": {"adaptive_softmax_cutoff": "8,15", "decoder_out_embed_dim": 16},
}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("arch", "options", "cells"),
    [
        # weight_ih, weight_hh and bias
        ("stacked_lstm_lm_ptb", {}, 2 * (800 * 400 + 800)),
        ("stacked_gru_lm_ptb", {}, 2 * (600 * 400 + 600 + 200)),
        ("cas_lstm_lm_ptb", {}, 800 * 400 + 800 + 1000 * 400 + 1000),
        ("highway_lstm_lm_ptb", {}, 800 * 400 + 800 + 800 * 400 + 200 * 200 + 1000 + 400),
        ("dg_lstm_lm_ptb", {}, 2 * (800 * 400 + 800 + 600) + 200 * 200 + 200 + 400),
        ("second_order_lstm_lm_wikitext2", {"num_cells": 1}, 2400 * 900 + 2400 + 300),
        ("second_order_lstm_lm_wikitext2", {}, 2 * (2400 * 900 + 2400 + 300)),
        ("second_order_lstm_lm_wikitext2", {"num_cells": 5}, 5 * (2400 * 900 + 2400 + 300)),
        ("stacked_lstm_lm_dyck_4", {}, 48 * 42 + 48),
        ("stacked_lstm_lm_dyck_6", {}, 72 * 48 + 72),
        ("stacked_lstm_lm_dyck_8", {}, 96 * 54 + 96),
    ],
)
def test_parameter_counts_of_the_papers(arch, options, cells):
    model = build(arch, **options)
    assert count(model.decoder.rnn) == cells
    embed, hidden = model.decoder.embed_tokens.embedding_dim, model.decoder.rnn.hidden_size
    assert count(model) == cells + SIZE * embed + SIZE * hidden + SIZE
    published = {
        "wikitext2": {1: 2.2e6, 2: 4.3e6, 5: 10.8e6},
        "dyck": {4: 2.1e3, 6: 3.5e3, 8: 5.3e3},
    }
    if "wikitext2" in arch:
        assert cells == pytest.approx(published["wikitext2"][options.get("num_cells", 2)], rel=0.02)
    if "dyck" in arch:
        assert cells == pytest.approx(published["dyck"][int(arch[-1])], rel=0.02)


@every_cell
def test_named_architectures(cell):
    for suffix, sizes in {
        "ptb": (2, 200, 200, 0.0),
        "wikitext2": (1, 300, 600, 0.5),
        "dyck": (1, 30, 12, 0.0),
        "tiny": (2, 12, 16, 0.0),
    }.items():
        decoder = build(f"{cell}_lm_{suffix}").decoder
        assert sizes == (
            decoder.rnn.num_layers,
            decoder.embed_tokens.embedding_dim,
            decoder.rnn.hidden_size,
            decoder.dropout_in_module.p,
        )
        assert decoder.dropout_out_module.p == sizes[-1]
        assert decoder.rnn.dropout == (sizes[-1] if sizes[0] > 1 else 0.0)
    assert build(f"{cell}_lm_ptb", dropout=0.3).decoder.dropout_out_module.p == 0.3


@pytest.mark.parametrize("variant", VARIANTS)
def test_output_layers(variant):
    """Normalised probabilities equal the definition of each output layer."""
    options = {"decoder_embed_dim": 6, **VARIANTS[variant]}
    model = random_model("cas_lstm", **options)
    tokens = random_tokens(2, 4)
    output, _ = net = model(tokens)
    features = model.extract_features(tokens)[0]
    probabilities = model.get_normalized_probs(net, log_probs=False)
    assert probabilities.shape == (2, 4, SIZE)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 4), check_dtype=False)
    if variant == "adaptive":
        return
    decoder = model.decoder
    tied = variant.startswith("tied")
    weight = decoder.embed_tokens.weight if tied else decoder.fc_out.weight
    expected = F.linear(features, weight, None if tied else decoder.fc_out.bias)
    torch.testing.assert_close(output, expected)
    assert (decoder.additional_fc is not None) == (variant in ("tied-other-size", "projected"))


def test_dropout_of_input_output_and_between_layers():
    for name in ("in", "between", "out"):
        model = random_model("stacked_lstm", **{f"decoder_dropout_{name}": 0.5}).train()
        torch.manual_seed(0)
        first, second = (model(random_tokens(2, 4))[0] for _ in range(2))
        assert not torch.equal(first, second)
        model.eval()
        assert torch.equal(model(random_tokens(2, 4))[0], model(random_tokens(2, 4))[0])
    model = random_model("stacked_lstm").train()
    assert torch.equal(model(random_tokens(2, 4))[0], model(random_tokens(2, 4))[0])


def test_locked_dropout():
    """In each row the same features are dropped at all steps; rows differ."""
    model = random_model("stacked_lstm", dropout=0.5, decoder_hidden_size=40, locked_dropout=True)
    torch.manual_seed(0)
    features = model.train().extract_features(random_tokens(2, 5))[0]  # (B, T, H)
    dropped = features.eq(0)
    assert torch.equal(dropped.all(1), dropped.any(1))
    assert 0.2 < dropped.double().mean() < 0.8
    assert not torch.equal(dropped[0], dropped[1])
    embedded = model.decoder.drop(model.decoder.dropout_in_module, torch.ones(4, 3, 40))
    assert torch.equal(embedded[0], embedded[3])
    assert set(embedded.unique().tolist()) == {0.0, 2.0}
    plain = random_model("stacked_lstm", decoder_hidden_size=40)
    tokens = random_tokens(2, 5)
    assert torch.equal(model.eval()(tokens)[0], plain(tokens)[0])


def test_locked_dropout_between_layers():
    """The input of the upper layer lacks the same features of a row at all steps."""
    model = random_model(
        "stacked_lstm", decoder_layers=2, decoder_dropout_between=0.5, locked_dropout=True
    )
    rnn, read = model.train().decoder.rnn, []
    between = rnn._input_dropout
    rnn._input_dropout = lambda x, k: read.append(between(x, k)) or read[-1]
    model(random_tokens(3, 5))
    bottom, upper = (x.eq(0) for x in read)  # (T, B, H)
    assert not bottom.any()
    assert torch.equal(upper.all(0), upper.any(0))
    assert 0 < upper.double().mean() < 1
    assert not torch.equal(upper[0, 0], upper[0, 1])


@every_cell
def test_weight_dropout(cell, monkeypatch):
    """A pass equals one with a masked, scaled weight; dropped weights get no gradient."""
    model, tokens = random_model(cell, weight_dropout=0.5).train(), random_tokens(3, 6)
    weights, masks = [], []

    def spy(x, p, training):
        found = dropout(x, p, training)
        if isinstance(x, torch.nn.Parameter):
            weights.append(x)
            masks.append(found.ne(0))
        return found

    monkeypatch.setattr(stack, "dropout", spy)
    logits = model(tokens)[0]
    logits.square().sum().backward()
    monkeypatch.undo()
    assert 0.2 < masks[0].double().mean() < 0.8
    assert all(w.grad[~mask].eq(0).all() for w, mask in zip(weights, masks, strict=True))
    plain = random_model(cell).train()
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    with torch.no_grad():
        for weight, mask in zip(weights, masks, strict=True):
            plain.get_parameter(names[id(weight)]).mul_(mask * 2)
    assert len(weights) == model.decoder.rnn.num_layers
    torch.testing.assert_close(plain(tokens)[0], logits)
    torch.testing.assert_close(model.eval()(tokens)[0], random_model(cell).eval()(tokens)[0])


def test_embed_dropout():
    """In training, all occurrences of a word are dropped or none."""
    model, tokens = random_model("stacked_lstm", embed_dropout=0.5), random_tokens(8, 30)
    decoder = model.train().decoder
    whole = decoder.embed_tokens(tokens)
    ratio = decoder.embed(tokens)[..., 0] / whole[..., 0]
    assert set(ratio.unique().tolist()) == {0.0, 2.0}
    assert all(ratio[tokens == word].unique().numel() == 1 for word in tokens.unique())
    assert torch.equal(model.eval().decoder.embed(tokens), whole)
    with pytest.raises(UserError, match=r"--weight-dropout is 1.5; it must lie in \[0, 1\]"):
        random_model("stacked_lstm", weight_dropout=1.5)


@every_cell
def test_carried_state(cell):
    """A text in pieces gives the same as the whole, and no gradient flows between the pieces."""
    model, tokens = random_model(cell), random_tokens(3, 9)
    whole, _ = model(tokens)
    carried, pieces = CarriedState(), []
    for piece in tokens.split([4, 1, 4], dim=1):
        pieces.append(model(piece, carried=carried)[0])
        assert not any(part.requires_grad for part in state_parts(carried.state))
    torch.testing.assert_close(torch.cat(pieces, 1), whole)
    assert not torch.allclose(model(tokens[:, 4:])[0], whole[:, 4:])


def test_models_of_an_ensemble_carry_states_of_their_own():
    models = [random_model("cas_lstm"), random_model("stacked_gru", decoder_hidden_size=7)]
    tokens, carried, pieces = random_tokens(3, 9), CarriedState(), {0: [], 1: []}
    for piece in tokens.split([4, 5], dim=1):
        for number, model in enumerate(models):
            pieces[number].append(model(piece, carried=carried)[0])
    for number, model in enumerate(models):
        torch.testing.assert_close(torch.cat(pieces[number], 1), model(tokens)[0])


@every_cell
def test_incremental_steps(cell):
    """Steps equal one pass, although hypotheses are reordered between them."""
    model, tokens = random_model(cell), random_tokens(3, 6)
    whole, _ = model(tokens)
    state, order = {}, torch.tensor([2, 0, 1])
    for t in range(6):
        if t == 3:
            model.decoder.reorder_incremental_state_scripting(state, order)
            tokens, whole = tokens[order], whole[order]
        output, _ = model(tokens[:, : t + 1], incremental_state=state)
        torch.testing.assert_close(output, whole[:, t : t + 1])


@every_cell
def test_padding_on_the_right_changes_nothing(cell):
    model, tokens = random_model(cell), random_tokens(2, 5)
    padded = torch.cat([tokens, torch.full((2, 3), 1)], 1)
    torch.testing.assert_close(model(padded)[0][:, :5], model(tokens)[0])


def test_search_continues_a_prefix():
    """Beam search with beam 1 repeatedly takes the most probable word."""
    model, words = random_model("dg_lstm"), make_task().source_dictionary
    prefix = random_tokens(2, 3)
    generator = SequenceGenerator([model], words, beam_size=1, max_len_b=7, min_len=7)
    sample = {"net_input": {"src_tokens": prefix, "src_lengths": torch.tensor([3, 3])}}
    found = generator.generate([model], sample, prefix_tokens=prefix, bos_token=words.eos())
    for row, hypotheses in zip(prefix, found, strict=True):
        tokens = [words.eos(), *row.tolist()]
        while len(tokens) < 8:
            logits = model(torch.tensor([tokens]))[0][0, -1]
            logits[[words.pad(), words.eos()]] = -torch.inf
            tokens.append(int(logits.argmax()))
        assert hypotheses[0]["tokens"].tolist()[:7] == tokens[1:]


def test_assignment_of_tokens_to_cells(tmp_path):
    """A token gives the same as in a model that has only the cell it is assigned to."""
    table = tmp_path / "cells"
    table.write_text("\ufeffw5 1\nw4 0\nelsewhere 1\n")
    model = random_model("second_order_lstm", assignment_path=str(table))
    assert not any("attention" in name for name, _ in model.named_parameters())
    assert model.decoder.rnn.assignment[[4, 5, 6]].tolist() == [0, 1, 0]
    rnn = model.decoder.rnn
    rnn.weight_ih_l0.data[24:] += 1  # the parameters of cell 1
    before = model(torch.tensor([[4], [5]]))[0]
    rnn.weight_ih_l0.data[24:] -= 1
    after = model(torch.tensor([[4], [5]]))[0]
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("w4 0\nw5\n", "line 2 is not a token, a space and the number of its cell, 0 to 1"),
        ("w4 ²\n", "line 1 is not a token, a space and the number of its cell"),
        (f"w4 {'9' * 5000}\n", "line 1 is not a token, a space and the number of its cell"),
        ("w4 0\nw5 2\n", "line 2 names cell 2, but --num-cells is 2, so the cells are 0 to 1"),
        ("w4 0\nw4 1\n", "line 2 assigns 'w4' again"),
        ("a 0\n", "assigns no token of the dictionary"),
    ],
)
def test_wrong_assignment(tmp_path, text, message):
    path = tmp_path / "cells"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        build("second_order_lstm_lm_tiny", assignment_path=str(path))
    with pytest.raises(UserError, match="none does not exist; check the path"):
        build("second_order_lstm_lm_tiny", assignment_path=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder_layers": 0}, "--decoder-layers is 0"),
        ({"decoder_out_embed_dim": 0}, "--decoder-out-embed-dim is 0"),
        ({"decoder_dropout_between": 1.5}, "--decoder-dropout-between is 1.5"),
        ({"adaptive_softmax_cutoff": "9,3"}, "--adaptive-softmax-cutoff is '9,3'"),
        (
            {"adaptive_softmax_cutoff": "9", "share_decoder_input_output_embed": True},
            "cannot share the output embedding",
        ),
        (
            {"decoder_out_embed_dim": 7, "share_decoder_input_output_embed": True},
            r"--decoder-embed-dim \(12\) equal to --decoder-out-embed-dim \(7\)",
        ),
        ({"lam": "2"}, "--lam is '2'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(UserError, match=message):
        build("cas_lstm_lm_tiny", **options)
