"""Sentence encoders: parameter counts, padding, pooling, features, classifier, options."""

import itertools

import pytest
import torch
from helpers import assert_close, rand

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.dropout import Dropout
from fairseq_casrnn.models.sentence_backbones import TransformerBackbone
from fairseq_casrnn.models.sentence_config import SentenceConfig, TransformerConfig
from fairseq_casrnn.models.sentence_parts import BatchNorm, Classifier, features

from .sentences import EOS, LENGTHS, NAMES, PAD, RECURRENT, alone, batch, encoder, make_task

POOLINGS = ["max", "mean", "last", "attention"]


def count(model):
    """The number of parameters without embeddings, as the papers count."""
    return sum(p.numel() for n, p in model.named_parameters() if "embed_tokens" not in n)


CAS = {"encoder_hidden_size": 300, "mlp_size": 1024}
BOTH = {"encoder_bidirectional": True}
SHORTCUT = {"mlp_layers": 2, "mlp_size": 800}


@pytest.mark.parametrize(
    ("name", "options", "millions"),
    [
        ("cas_lstm", {**CAS, "encoder_layers": 2, "mlp_layers": 1}, 2.9),
        ("cas_lstm", {**CAS, **BOTH, "encoder_layers": 2, "mlp_layers": 2}, 6.8),
        ("cas_lstm", {**CAS, "encoder_layers": 3, "mlp_layers": 2}, 4.8),
        ("cas_lstm", {**CAS, **BOTH, "encoder_layers": 3, "mlp_layers": 2}, 8.6),
    ],
)
def test_counts_of_the_cas_paper(name, options, millions):
    """Table 1 rounds its numbers."""
    model = encoder(name, make_task(3, pairs=True), tiny=False, **options)
    assert round(count(model) / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("connection", "sizes", "mlp", "millions"),
    [
        ("shortcut", "512,1024,2048", 1600, 140.1),
        ("residual", "300,300,300", 800, 9.7),
        ("residual", "600,600,600", 800, 28.9),
        ("shortcut", "600,600,600", 800, 34.7),
    ],
)
def test_counts_of_the_shortcut_paper(connection, sizes, mlp, millions):
    """The paper truncates its figures after the first decimal, and 140 M to an integer."""
    with torch.device("meta"):
        model = encoder(
            "shortcut_lstm", make_task(3, pairs=True), tiny=False, connection=connection,
            hidden_sizes=sizes, mlp_layers=2, mlp_size=mlp,
        )  # fmt: skip
    assert count(model) // 100_000 / 10 == millions


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_padding_and_order(name, pooling):
    model = encoder(name, pooling=pooling).eval()
    rows = batch()
    together = model(rows)
    assert together.shape == (3, 3)
    assert together.isfinite().all()
    for b in range(len(LENGTHS)):
        assert_close([together[b]], [model(alone(rows, b))[0]])
    order = torch.tensor([2, 0, 1])
    assert_close([model(rows[order])], [together[order]])
    wider = torch.cat([rows, rows.new_full((3, 4), 1)], dim=1)
    assert_close([model(wider)], [together])


def test_a_padding_symbol_in_the_text():
    """A padding symbol stands for no word, and does not end the sentence."""
    model = encoder("stacked_lstm").eval()
    rows = batch()[1:2].clone()
    rows[0, 1:3] = PAD
    changed = rows.clone()
    changed[0, -2] = rows[0, -2] + 1
    assert not torch.equal(model(rows), model(changed))
    wider = torch.cat([rows, rows.new_full((1, 4), PAD)], dim=1)
    assert_close([model(wider)], [model(rows)])


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name):
    """A batch may have an empty sentence, and no gradient is NaN."""
    model = encoder(name).train()
    torch.nn.functional.cross_entropy(model(batch()), torch.tensor([0, 1, 2])).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", RECURRENT)
def test_last_pooling_is_the_final_state(name):
    model = encoder(name, pooling="last", encoder_bidirectional=True).eval()
    rows, lengths = batch(), torch.tensor(LENGTHS)
    rnn = model.encoder.body.rnn
    _, state = rnn(model.encoder.embed_tokens(rows.t()), lengths=lengths)
    h_n = state[0] if rnn.has_cell else state
    assert_close([model.encoder(rows)], [torch.cat([h_n[-2], h_n[-1]], -1)])


def test_boundaries_of_the_sentence_state_lstm():
    """<s> and </s> surround the words; without boundaries, an empty sentence is </s>."""
    model = encoder("sentence_state_lstm").eval()
    sentence = torch.tensor([[5, 6, 7, EOS]])
    embed, rnn = model.encoder.embed_tokens, model.encoder.body.rnn
    expected = rnn(embed(torch.tensor([[0], [5], [6], [7], [EOS]])))[1]
    assert_close([model.encoder(sentence)], [expected])
    bare = encoder("sentence_state_lstm", no_boundaries=True).eval()
    assert_close([bare.encoder(sentence)], [rnn(embed(torch.tensor([[5], [6], [7]])))[1]])
    assert_close([bare.encoder(torch.tensor([[EOS]]))], [rnn(embed(torch.tensor([[EOS]])))[1]])
    assert_close([bare.encoder(torch.tensor([[5, EOS]]))], [rnn(embed(torch.tensor([[5]])))[1]])
    both = bare.encoder(torch.tensor([[5, 6, 7, EOS], [EOS, 1, 1, 1]]))
    assert_close([both[1:]], [bare.encoder(torch.tensor([[EOS]]))])


def test_sentence_nodes_and_window_reach_the_layer():
    options = {"recompute": True, "engine": "reference"}
    model = encoder("sentence_state_lstm", num_sentence_nodes=3, window=2, num_steps=5, **options)
    rnn = model.encoder.body.rnn
    assert (rnn.recompute, rnn.engine) == (True, "reference")
    assert (rnn.num_sentence_nodes, rnn.window, rnn.num_steps) == (3, 2, 5)
    assert model.encoder.output_size == 3 * 8
    # one word, and a window wider than the sentence
    assert model(torch.tensor([[5, EOS]])).isfinite().all()


def test_a_convolution_by_hand():
    """Width 2, one filter: relu(w₀·x_t + w₁·x_{t+1} + b) with a zero after the sentence."""
    model = encoder(
        "cnn", encoder_layers=1, filter_widths="2", num_filters=1, encoder_embed_dim=1,
        pooling="max",
    )  # fmt: skip
    (conv,) = model.encoder.body.layers[0]
    with torch.no_grad():
        model.encoder.embed_tokens.weight[[5, 6, EOS], 0] = torch.tensor([2.0, -3.0, 1.0]).double()
        conv.weight[0, 0] = torch.tensor([1.0, 10.0])
        conv.bias[0] = 0.5
    # 5 6 </s>: 2-30, -3+10, 1+0
    assert model.encoder(torch.tensor([[5, 6, EOS, 1]])).item() == pytest.approx(7.5)
    # 6 </s> 5: -3+10, 1+20, 2
    assert model.encoder(torch.tensor([[6, EOS, 5, 1]])).item() == pytest.approx(21.5)


def transformer(size, heads, ffn_size, layers, dropout=0.0):
    options = {"encoder_attention_heads": heads, "encoder_ffn_embed_dim": ffn_size}
    cfg = TransformerConfig(encoder_layers=layers, dropout=dropout, **options)
    return TransformerBackbone(cfg, size)


@pytest.mark.parametrize("training", [True, False])
def test_the_transformer_is_that_of_torch(training):
    """Our matrix products and dropout equal torch's encoder; dropout acts in training."""
    body = transformer(12, 3, 20, 2).train(training)
    theirs = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(12, 3, 20, 0.0, norm_first=True),
        2,
        torch.nn.LayerNorm(12),
        enable_nested_tensor=False,
    ).train(training)
    theirs.load_state_dict(body.layers.state_dict())
    x, lengths = rand(40, 8, 12, dtype=torch.float32), torch.tensor([40, 1, 7, 40, 33, 2, 9, 40])
    padding = torch.arange(40) >= lengths[:, None]  # (B, T)
    positions = body.positions((~padding).long()).transpose(0, 1)
    expected = theirs(12**0.5 * x + positions, src_key_padding_mask=padding)
    real = ~padding.t()
    torch.testing.assert_close(body(x, lengths, None)[0][real], expected[real])
    dropping = transformer(12, 3, 20, 1, dropout=0.5).train(training)
    first, second = (dropping(x, lengths, None)[0][real] for _ in range(2))
    assert torch.equal(first, second) != training


def test_layers_of_the_transformer_have_different_initial_weights():
    backbone = transformer(8, 2, 16, 3)
    weights = [layer.linear1.weight for layer in backbone.layers.layers]
    assert len(weights) == 3
    assert not any(torch.equal(*pair) for pair in itertools.combinations(weights, 2))


def test_the_transformer_knows_positions():
    model = encoder("transformer").eval()
    first = model(torch.tensor([[5, 6, 7, EOS]]))
    assert (first - model(torch.tensor([[7, 6, 5, EOS]]))).abs().max() > 1e-4


def test_features():
    a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
    assert features("single", a) is a
    assert features("nli", a, b).tolist() == [[1, 2, 3, -1, 2, 3, 3, -2]]
    assert features("paraphrase", a, b).tolist() == [[2, 3, 3, -2]]


def test_both_sentences_share_the_encoder():
    model = encoder("cas_lstm", make_task(2, pairs=True)).eval()
    first, second = batch(), batch((2, 3, 5), seed=1)
    expected = model.classifier(features("nli", model.encoder(first), model.encoder(second)))
    assert model(first, second).equal(expected)
    swapped = encoder("cas_lstm", make_task(2, pairs=True), features="paraphrase").eval()
    assert swapped(first, second).equal(swapped(second, first))


def test_classifier():
    options = {"mlp_activation": "tanh", "mlp_batch_norm": True, "mlp_dropout": 0.5}
    deep = Classifier(4, 3, SentenceConfig(mlp_size=5, mlp_layers=2, **options))
    hidden = ["Linear", "BatchNorm", "Tanh", "Dropout"]
    assert [type(part).__name__ for part in deep] == ["Dropout", *hidden, *hidden, "Linear"]
    linear = Classifier(4, 3, SentenceConfig(mlp_layers=0, mlp_dropout=0.0))
    assert [type(part).__name__ for part in linear] == ["Dropout", "Linear"]


def test_options_reach_their_parts():
    model = encoder("stacked_lstm", engine="reference", encoder_interleaved=True)
    assert model.encoder.body.rnn.engine == "reference"
    assert model.encoder.body.rnn.bidirectional == "interleaved"
    assert encoder("shortcut_lstm", engine="reference").encoder.body.rnn.layers[0].engine
    with pytest.raises(UserError, match="--mlp-batch-norm normalises hidden layers, but"):
        encoder("cnn", mlp_batch_norm=True, mlp_layers=0)
    kinds = [type(part) for part in encoder("cnn", mlp_batch_norm=True).classifier]
    assert BatchNorm in kinds
    kinds = [type(part) for part in encoder("cnn", mlp_activation="tanh").classifier]
    assert torch.nn.Tanh in kinds
    assert BatchNorm not in kinds


def test_dropout_of_the_classifier():
    def rates(**options):
        model = encoder("cas_lstm", dropout=0.3, mlp_layers=1, **options)
        return [part.p for part in model.classifier if isinstance(part, Dropout)]

    assert rates() == [0.3, 0.3]
    assert rates(mlp_dropout=0.2) == [0.2, 0.2]
    assert rates(mlp_dropout=0.2, mlp_dropout_in=0.0) == [0.0, 0.2]


def test_batch_norm_of_a_single_sentence():
    norm = BatchNorm(3).double()
    expected = rand(1, 3) / (1 + norm.eps) ** 0.5
    assert_close([norm(rand(1, 3))], [expected])
    assert norm.training
    assert norm.running_mean.eq(0).all()  # the batch is not counted
    for count in (2, 4):
        assert norm(rand(count, 3)).mean(0).abs().max() < 1e-12


def test_embeddings_start_in_their_range():
    weight = encoder("cas_lstm", encoder_embed_range=0.5).encoder.embed_tokens.weight
    assert 0.4 < weight.abs().max() <= 0.5
    assert not weight[1].any()


def test_pretrained_and_frozen_embeddings(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("w5 " + " ".join(["1"] * 8) + "\n")
    model = encoder("cas_lstm", encoder_embed_path=str(path), encoder_freeze_embed=True)
    weight = model.encoder.embed_tokens.weight
    assert weight[5].eq(1).all()
    assert not weight.requires_grad


def test_temperature_is_annealed():
    model = encoder("second_order_lstm", num_cells=2)
    model.set_epoch(3)
    assert model.encoder.body.rnn.temperature.item() == pytest.approx(0.81)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cas_lstm", {"pooling": "node"}, "--pooling 'node' takes the sentence nodes of a"),
        ("cas_lstm", {"pooling": "sum"}, "--pooling is 'sum'; use one of max"),
        (
            "cas_lstm",
            {"encoder_interleaved": True},
            "cas_lstm reads .* below, and --encoder-interleaved .* give --encoder-bidirectional",
        ),
        ("cas_lstm", {"features": "nli"}, "--features nli takes two sentences, but the data has"),
        ("cas_lstm", {"features": "sum"}, "--features is 'sum'; use single, nli, paraphrase"),
        ("cas_lstm", {"mlp_activation": "gelu"}, "--mlp-activation is 'gelu'; use relu or tanh"),
        ("cas_lstm", {"mlp_layers": -1}, "--mlp-layers is -1"),
        ("cas_lstm", {"mlp_dropout": 1.5}, "--mlp-dropout is 1.5"),
        ("cas_lstm", {"encoder_embed_range": 0.0}, "--encoder-embed-range is 0.0"),
        ("cas_lstm", {"lam": "2"}, "--lam is '2'"),
        ("sentence_state_lstm", {"num_steps": 0}, "--num-steps is 0"),
        ("shortcut_lstm", {"hidden_sizes": "4,x"}, "--hidden-sizes is '4,x'; give positive"),
        ("shortcut_lstm", {"connection": "all"}, "--connection is 'all'"),
        ("cnn", {"filter_widths": "3,0"}, "--filter-widths is '3,0'"),
        ("transformer", {"encoder_attention_heads": 3}, "must be a multiple of"),
    ],
)
def test_wrong_options(name, options, message):
    with pytest.raises(UserError, match=message):
        encoder(name, **options)


def test_no_sentence_nodes():
    """The first row of Table 2 of the S-LSTM paper has no nodes, and needs another pooling."""
    name = "sentence_state_lstm"
    assert encoder(name, num_sentence_nodes=0, pooling="mean").encoder.body.node_size == 0
    with pytest.raises(UserError, match="does not have; use max"):
        encoder(name, num_sentence_nodes=0)
    with pytest.raises(UserError, match="--num-sentence-nodes is -1"):
        encoder(name, num_sentence_nodes=-1, pooling="mean")
