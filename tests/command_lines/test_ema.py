"""Exponential moving averages of the weights: fairseq's --store-ema, and what reads them."""

import pytest
import torch

from fairseq_casrnn.cli import main
from fairseq_casrnn.diagnostics.explain import explain
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.runs import choose_checkpoint
from fairseq_casrnn.inference import average

from .programs import assert_same_training, checkpoint, generate, train

EMA = ["--store-ema", "--ema-decay", "0.5", "--ema-start-update", "3"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("arch", ["cas_lstm_tiny", "dg_lstm_tiny", "second_order_lstm_tiny"])
def test_ema_is_the_weighted_mean_of_all_updates(data, tmp_path, arch):
    """With a decay of 0.5, weights count one half, those of the update before a quarter, etc."""
    options = [*EMA, "--save-interval-updates", 1, "--disable-validation"]
    train(data, tmp_path, arch, *options, "--max-update", 6)
    paths = {n: tmp_path / f"checkpoint_1_{n}.pt" for n in range(2, 7)}
    expected = checkpoint(paths[2])["model"]  # before --ema-start-update, the weights themselves
    for n in range(3, 7):
        new = checkpoint(paths[n])["model"]
        expected = {name: (old + new[name]) / 2 for name, old in expected.items()}
    found = checkpoint(choose_checkpoint(tmp_path, "ema"))
    assert found["model"].keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found["model"][name], tensor)
    assert not found["model"]["decoder.embed_tokens.weight"].equal(
        checkpoint(paths[6])["model"]["decoder.embed_tokens.weight"]
    )
    assert "ema" not in found["extra_state"]
    assert len(generate(data, tmp_path / "checkpoint_avg_ema.pt").lines("H")) == 9


@pytest.mark.full
def test_ema_of_an_interrupted_training(data, tmp_path):
    options = [*EMA, "--save-interval-updates", 4, "--disable-validation"]
    train(data, tmp_path / "whole", "cas_lstm_tiny", *options)
    train(data, tmp_path / "parts", "cas_lstm_tiny", *options, "--max-update", 6)
    train(data, tmp_path / "parts", "cas_lstm_tiny", *options)
    paths = [tmp_path / name / "checkpoint_last.pt" for name in ("whole", "parts")]
    assert_same_training(*paths)
    whole, parts = (average.average([path], ema=True)["model"] for path in paths)
    assert all(tensor.equal(parts[name]) for name, tensor in whole.items())


def test_ema_cannot_start_on_resuming(data, tmp_path):
    train(data, tmp_path, "cas_lstm_tiny", epochs=1)
    with pytest.raises(KeyError) as caught:
        train(data, tmp_path, "cas_lstm_tiny", *EMA)
    sentence = explain(caught.value)
    assert f"{tmp_path}/checkpoint_last.pt was trained without --store-ema" in sentence


@pytest.mark.full
def test_casrnn_average_ema(data, tmp_path, trained, capsys):
    train(data, tmp_path, "cas_lstm_tiny", *EMA, epochs=2)
    out = tmp_path / "mean.pt"
    command = ["average", "--run", str(tmp_path), "--which", "last:2", "--ema"]
    assert main([*command, "--output", str(out)]) == 0
    kept = [
        checkpoint(tmp_path / f"checkpoint{n}.pt")["extra_state"]["ema"]["decoder.fc_out.weight"]
        for n in (1, 2)
    ]
    assert not kept[0].equal(kept[1])
    mean = checkpoint(out)["model"]["decoder.fc_out.weight"]
    torch.testing.assert_close(mean, (kept[0] + kept[1]) / 2)
    assert main(["average", "--run", str(tmp_path), "--ema", "--output", str(out)]) == 0
    assert checkpoint(out)["model"]["decoder.fc_out.weight"].equal(kept[1])
    capsys.readouterr()
    without = trained("cas_lstm") / "checkpoint_last.pt"
    assert main(["average", str(without), "--ema", "--output", str(tmp_path / "x.pt")]) == 2
    assert "holds no weights averaged in training (--store-ema); use" in capsys.readouterr().err
    assert not (tmp_path / "x.pt").exists()
    with pytest.raises(UserError, match="holds no weights averaged in training"):
        choose_checkpoint(trained("cas_lstm"), "ema")
