"""Second-order LSTM: soft and hard routing, routing by token, and annealing of the temperature."""

import io

import pytest
import torch
from cells.unrolled import run_batch
from helpers import (
    LENGTHS,
    B,
    H,
    I,
    T,
    assert_close,
    every_engine,
    flat,
    gradients,
    rand,
    rand_state,
    randomize,
    weighted,
)
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairseq_casrnn.layers import LSTM, SecondOrderLSTM

TABLE = [2, 0, 1, 1, 0]  # token -> cell


def build(num_layers=2, num_cells=3, **kwargs):
    return randomize(SecondOrderLSTM(I, H, num_layers, num_cells, **kwargs).double())


def lstm_of_cell(layer, chosen):
    """Return a plain LSTM with the parameters of cell ``chosen`` of a one-layer ``layer``."""
    plain = LSTM(I, H).double()
    own = slice(chosen * 4 * H, (chosen + 1) * 4 * H)
    plain.load_state_dict({key: layer.state_dict()[key][own] for key in plain.state_dict()})
    return plain


@every_engine
def test_eval_takes_the_cell_with_the_largest_weight(engine):
    """All inputs are routed to one cell, so the layer is that cell's LSTM."""
    layer = build(1, engine=engine).eval()
    for chosen in range(3):
        x = rand(T, B, I)
        x[..., 0] = 5.0  # the only input that the attention reads
        with torch.no_grad():
            layer.attention_l0.zero_()
            layer.attention_l0[:, 0] = torch.tensor([0.1, 0.2, 0.3]).roll(chosen + 1)
        assert_close(flat(layer(x)), flat(lstm_of_cell(layer, chosen)(x)))


def test_eval_takes_the_first_cell_in_a_tie():
    layer = build(1).eval()
    torch.nn.init.zeros_(layer.attention_l0)
    assert_close(flat(layer(rand(T, B, I))), flat(lstm_of_cell(layer, 0)(rand(T, B, I))))


@every_engine
def test_routing_hardens_as_the_temperature_falls(engine):
    """Soft routing in training approaches the hard routing of eval as τ goes to 0."""
    layer = build(engine=engine)
    x = rand(T, B, I)
    hard = layer.eval()(x)[0]
    distance = []
    for tau in (1.0, 0.1, 1e-4):
        layer.train().temperature.fill_(tau)
        distance.append((layer(x)[0] - hard).abs().max().item())
    assert distance[0] > 0.01
    assert distance[0] > distance[1] > distance[2]
    assert distance[2] < 1e-6


def test_pickled_layers_of_earlier_versions():
    """Attributes added later are class attributes, which older pickles find."""
    layer = build()
    assert not vars(layer).keys() & {"soft_routing", "dropout_in_inference"}
    assert not layer.soft_routing
    assert not layer.dropout_in_inference


def test_temperature_has_no_effect_in_eval():
    layer = build().eval()
    first = layer(rand(T, B, I))[0]
    layer.temperature.fill_(0.01)
    assert torch.equal(layer(rand(T, B, I))[0], first)


def test_mixture_weights():
    """α = softmax(V x / τ), for every layer and direction from its own input and V."""
    layer = build(bidirectional=True)
    layer.temperature.fill_(0.5)
    for k, suffix, size in ((0, "", I), (0, "_reverse", I), (1, "", H), (1, "_reverse", H)):
        x = rand(T, B, size)
        alpha = layer.mixture_weights(k, suffix, x, None)
        scores = x @ getattr(layer, f"attention_l{k}{suffix}").t()
        assert_close([alpha], [(2 * scores).exp() / (2 * scores).exp().sum(-1, keepdim=True)])
        hard = layer.eval().mixture_weights(k, suffix, x, None)
        assert torch.equal(hard.cells, scores.argmax(-1))
        weights = hard.weights(torch.float64)
        assert weights.sum(-1).eq(1).all()
        assert torch.equal(weights.argmax(-1), hard.cells)
        layer.train()


def test_attention_gets_gradients_only_in_training():
    layer = build()
    attentions = [layer.attention_l0, layer.attention_l1]
    assert all(g.any() for g in gradients(weighted(flat(layer(rand(T, B, I)))), attentions))
    layer.eval()
    assert not any(g.any() for g in gradients(weighted(flat(layer(rand(T, B, I)))), attentions))


@every_engine
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("table", [TABLE, torch.tensor(TABLE), torch.tensor(TABLE).int()])
def test_routing_by_token(engine, training, table):
    """Each token is routed to its cell in every layer, in training and in eval."""
    layer = build(routing="assignment", assignment=table, engine=engine).train(training)
    x, state = rand(T, 1, I), rand_state(layer, 1)
    for token, cell in enumerate(TABLE):
        tokens = torch.full((T, 1), token)
        expected = run_batch(
            "second_order_lstm",
            dict(layer.named_parameters()),
            x,
            state,
            [T],
            2,
            H,
            options={"num_cells": 3, "chosen": cell},
        )
        assert_close(flat(layer(x, state, tokens=tokens)), expected)


def test_routing_by_token_within_a_batch():
    layer = build(1, routing="assignment", assignment=TABLE)
    tokens = torch.tensor([[0, 1], [2, 4]])
    x = rand(2, 2, I)
    first, state = layer(x[:1], tokens=tokens[:1])
    second, _ = layer(x[1:], state, tokens=tokens[1:])
    assert_close([layer(x, tokens=tokens)[0]], [torch.cat([first, second])])
    for b in range(2):
        chosen = lstm_of_cell(layer, TABLE[tokens[0, b]])
        assert_close([first[:, b]], [chosen(x[:1])[0][:, b]])


@every_engine
def test_routing_by_token_in_both_directions(engine):
    """The tokens are reversed together with their sequence, within its own length."""
    layer = build(bidirectional=True, routing="assignment", assignment=TABLE, engine=engine)
    single = build(routing="assignment", assignment=TABLE)
    own = {k.removesuffix("_reverse"): v for k, v in layer.state_dict().items() if "_rev" in k}
    single.load_state_dict(own, strict=False)
    x = rand(T, B, I)
    tokens = torch.randint(5, (T, B), generator=torch.Generator().manual_seed(0))
    output, _ = layer(x, None, LENGTHS, tokens)
    for b, n in enumerate(LENGTHS):
        backward, _ = single(x[:n, [b]].flip(0), tokens=tokens[:n, [b]].flip(0))
        assert_close([output[:n, [b], H:]], [backward.flip(0)])


def test_tokens_of_a_packed_sequence():
    """With batch_first the tokens are ``(B, T)``, even if the input is packed."""
    layer = build(routing="assignment", assignment=TABLE, batch_first=True)
    x, tokens = rand(B, T, I), torch.arange(B * T).view(B, T) % 5
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    output, _ = layer(packed, tokens=tokens)
    found, _ = pad_packed_sequence(output, batch_first=True)
    assert_close([found], [layer(x, None, LENGTHS, tokens)[0]])


def test_routing_by_token_interleaved():
    """One layer equals independent directions; for more layers, each row equals a batch of one."""
    x = rand(T, B, I)
    tokens = torch.randint(5, (T, B), generator=torch.Generator().manual_seed(0))
    settings = {"routing": "assignment", "assignment": TABLE}
    one, same = (build(1, bidirectional=kind, **settings) for kind in ("interleaved", True))
    assert_close(flat(one(x, None, LENGTHS, tokens)), flat(same(x, None, LENGTHS, tokens)))
    layer = build(bidirectional="interleaved", **settings)
    output, _ = layer(x, None, LENGTHS, tokens)
    for b, n in enumerate(LENGTHS):
        alone, _ = layer(x[:n, [b]], tokens=tokens[:n, [b]])
        assert_close([output[:n, [b]]], [alone])


def test_assignment_is_copied_and_saved():
    table = torch.tensor(TABLE)
    layer = build(routing="assignment", assignment=table)
    table.zero_()
    assert layer.assignment.tolist() == TABLE
    other = build(routing="assignment", assignment=[0] * 5)
    other.load_state_dict(layer.state_dict())
    assert other.assignment.tolist() == TABLE
    assert layer.assignment.dtype == layer.double().assignment.dtype == torch.int64


def temperatures(layer, epochs):
    values = []
    for epoch in epochs:
        layer.set_epoch(epoch)
        values.append(layer.temperature.item())
    return values


def test_temperature_schedule():
    """τ starts at 1 and is multiplied by 0.9 after each epoch, down to 0.0001."""
    layer = SecondOrderLSTM(I, H)
    assert layer.temperature.item() == 1
    assert temperatures(layer, [1, 2, 3, 4]) == pytest.approx([1, 0.9, 0.81, 0.729])
    # 0.9^87 = 1.045e-4, 0.9^88 = 0.940e-4
    assert temperatures(layer, [88, 89, 90, 1000]) == pytest.approx([0.9**87, 1e-4, 1e-4, 1e-4])
    assert temperatures(layer, [1, 0]) == [1, 1]


def test_temperature_with_other_settings():
    layer = SecondOrderLSTM(I, H, temperature=2.0, temperature_decay=0.5, temperature_floor=0.3)
    assert layer.temperature.item() == 2
    assert temperatures(layer, [1, 2, 3, 4, 5]) == pytest.approx([2, 1, 0.5, 0.3, 0.3])
    constant = SecondOrderLSTM(I, H, temperature=0.7, temperature_decay=1.0)
    assert temperatures(constant, [1, 9]) == pytest.approx([0.7, 0.7])


def test_a_floor_above_the_start_is_ignored():
    layer = SecondOrderLSTM(I, H, temperature=0.05, temperature_floor=0.1)
    assert temperatures(layer, [1, 2, 50]) == pytest.approx([0.05] * 3)


def test_temperature_is_part_of_the_checkpoint():
    layer = build()
    layer.set_epoch(5)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert state["temperature"].item() == pytest.approx(0.9**4)
    resumed = build()
    resumed.load_state_dict(state)
    assert resumed.temperature.item() == pytest.approx(0.9**4)
    x = rand(T, B, I)
    assert torch.equal(resumed(x)[0], layer(x)[0])
    resumed.set_epoch(6)
    layer.set_epoch(6)
    assert torch.equal(resumed.temperature, layer.temperature)
    assert not layer.temperature.requires_grad


def test_routing_by_token_has_no_temperature():
    layer = SecondOrderLSTM(I, H, num_cells=3, routing="assignment", assignment=TABLE)
    layer.set_epoch(7)
    assert "temperature" not in layer.state_dict()
    assert not any("attention" in name for name, _ in layer.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_temperatures_in_half_precision(dtype):
    """A score divided by the temperature may exceed the range of float16."""
    torch.manual_seed(6)  # no near-ties between the best two scores of an input
    layer = SecondOrderLSTM(I, H, num_cells=3).to(dtype)
    layer.temperature.fill_(1e-4)
    x = 9 * rand(T, B, I).to(dtype)
    output = layer(x)[0]
    assert output.dtype == dtype
    assert output.isfinite().all()
    hard = layer.eval()(x)[0]
    assert_close([output], [hard], {"rtol": 0.02, "atol": 0.02})
