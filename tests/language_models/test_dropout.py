"""Dropout of language models with p = 1, and other options that reach the decoder."""

import torch
from helpers import assert_close

from .common import build, random_model, random_tokens


def test_dropout_after_the_projection():
    """With p = 1 only the output bias contributes."""
    for locked in (False, True):
        options = {"decoder_dropout_out": 1.0, "locked_dropout": locked}
        model = random_model("stacked_lstm", decoder_out_embed_dim=7, **options).train()
        assert model.decoder.additional_fc.bias.abs().max() > 0
        output, _ = model(random_tokens(2, 4))
        assert_close([output], [model.decoder.fc_out.bias.expand_as(output)])


def test_dropout_retained_step_by_step():
    """--retain-dropout of fairseq-generate applies to the embeddings and to the output."""
    for place in ("in", "out"):
        model = random_model("stacked_lstm", **{f"decoder_dropout_{place}": 1.0}).eval()

        def steps(seed, model=model):
            state, tokens = {}, random_tokens(2, 3, seed)
            outputs = [model(tokens[:, : t + 1], incremental_state=state)[0] for t in range(3)]
            return torch.cat(outputs, dim=1)

        assert (steps(0) - steps(1)).abs().max() > 1e-6
        model.make_generation_fast_(retain_dropout=True)
        assert_close([steps(0)], [steps(1)])


def test_engine_reaches_the_layers():
    for engine in ("reference", None):
        assert build("cas_lstm_lm_tiny", engine=engine).decoder.rnn.engine == engine


def test_pretrained_and_frozen_embeddings(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("w5 " + " ".join(["1"] * 12) + "\n")
    for frozen in (False, True):
        options = {"decoder_embed_path": str(path), "decoder_freeze_embed": frozen}
        weight = build("cas_lstm_lm_tiny", **options).decoder.embed_tokens.weight
        assert weight[5].eq(1).all()
        assert not weight[6].eq(1).any()
        assert weight.requires_grad is not frozen
