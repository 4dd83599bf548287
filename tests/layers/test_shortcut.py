"""Shortcut-stacked LSTM: the input of each layer, compared with torch.nn.LSTM."""

import pytest
import torch
from helpers import LENGTHS, assert_close, rand, randomize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import ShortcutStackedLSTM
from fairseq_casrnn.layers.shortcut import CONNECTIONS

I, SIZES, EQUAL = 3, (4, 2, 5), (4, 4, 4)


def with_torch(layer, connection, x):
    """Return the last output for one unpadded sentence, using torch's LSTM for each layer."""
    outputs = []
    for lstm in layer.layers:
        if connection == "residual":
            below = [x, *([torch.stack(outputs).sum(0)] if outputs else [])]
        else:
            plain = {"shortcut": [x, *outputs], "word": [x, *outputs[-1:]]}
            below = plain.get(connection, outputs[-1:] or [x])
        outputs.append(lstm.to_torch_lstm()(torch.cat(below, -1))[0])
    return outputs[-1]


@pytest.mark.parametrize(
    ("connection", "sizes", "inputs"),
    [
        ("shortcut", SIZES, (3, 11, 15)),
        ("residual", EQUAL, (3, 11, 11)),
        ("word", SIZES, (3, 11, 7)),
        ("none", SIZES, (3, 8, 4)),
    ],
)
def test_inputs_of_each_layer(connection, sizes, inputs):
    layer = randomize(ShortcutStackedLSTM(I, sizes, connection).double())
    assert tuple(lstm.input_size for lstm in layer.layers) == inputs
    x, lengths = rand(5, 3, I), torch.tensor(LENGTHS)
    output, (h_n, _) = layer(x, lengths)
    assert output.shape == (5, 3, layer.output_size) == (5, 3, 2 * sizes[-1])
    for b, length in enumerate(LENGTHS):
        expected = with_torch(layer, connection, x[:length, b : b + 1])
        assert_close([output[:length, b]], [expected[:, 0]])
        assert not output[length:, b].any()
        assert_close([h_n[0, b]], [output[length - 1, b, : sizes[-1]]])
        assert_close([h_n[1, b]], [output[0, b, sizes[-1] :]])


def test_parameter_names():
    names = dict(ShortcutStackedLSTM(I, (4, 2)).named_parameters())
    assert names["layers.0.weight_ih_l0"].shape == (16, 3)
    assert names["layers.1.weight_ih_l0_reverse"].shape == (8, 11)
    assert names["layers.1.bias_l0"].shape == (8,)
    assert len(names) == 12


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_word_embeddings_are_not_dropped(connection):
    layer = ShortcutStackedLSTM(I, (4, 2 if connection != "residual" else 4), connection, 1.0)
    x, below = rand(4, 2, I, dtype=torch.float32), rand(4, 2, 8, dtype=torch.float32)
    assert layer.layer_input(x, []).equal(x)
    read = layer.layer_input(x, [below])
    assert not read[..., -8:].any()
    assert read[..., :-8].equal(x if connection != "none" else x[..., :0])
    assert layer.eval().layer_input(x, [below])[..., -8:].equal(below)


def test_packed_sequence():
    layer = ShortcutStackedLSTM(I, (4, 2)).double()
    x = rand(5, 3, I)
    expected, (h_n, c_n) = layer(x, lengths=torch.tensor(LENGTHS))
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    output, state = layer(packed)
    assert_close([pad_packed_sequence(output)[0], *state], [expected, h_n, c_n])
    with pytest.raises(UserError, match="leave lengths out"):
        layer(packed, lengths=torch.tensor(LENGTHS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((I, ()), "hidden_sizes is empty"),
        ((I, (4, 0)), "a hidden size is 0"),
        ((I, (4,), "skip"), "connection is 'skip'; use one of shortcut, residual, word, none"),
        ((I, (4, 5), "residual"), "need equal sizes"),
        ((I, (4,), "none", 1.5), "dropout is 1.5"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(UserError, match=message):
        ShortcutStackedLSTM(*arguments)
