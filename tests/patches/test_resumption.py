"""What this package adds to checkpoints, and when it is loaded again."""

import contextlib
import re
from types import SimpleNamespace

import pytest
from fairseq.models import MODEL_DATACLASS_REGISTRY

import fairseq_casrnn
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches import resumption
from fairseq_casrnn.patches.resumption import (
    check_functional_options,
    functional_options,
    restore_state,
)

fairseq_casrnn.register()


@pytest.mark.parametrize(
    ("arguments", "named", "resumes"),
    [
        ((), {}, True),
        ((False, False, {"lr": [0.1]}), {"reset_meters": False}, True),
        ((True, False), {}, False),
        ((False, True), {}, False),
        ((False, False, None, True), {}, False),
        ((), {"reset_optimizer": True}, False),
        ((), {"reset_lr_scheduler": True}, False),
        ((False, False, None), {"reset_meters": True}, False),
    ],
)
def test_state_is_loaded_if_nothing_is_reset(arguments, named, resumes, monkeypatch):
    loaded = []
    monkeypatch.setattr(resumption, "restore", lambda *args: loaded.append(args))
    assert restore_state({"epoch": 3}, "trainer", "file", *arguments, **named) == {"epoch": 3}
    assert loaded == [("trainer", {"epoch": 3}, resumes)]


def test_no_checkpoint():
    assert restore_state(None, "trainer", "file") is None


def test_only_dictionaries_are_compared_without_resuming():
    """The trainer of this test has nothing else that could be restored."""
    compared = []
    trainer = SimpleNamespace(task=SimpleNamespace(check_words=compared.append))
    for state in ({"task": {"words": 1}, "early_stopping": {"num_runs": 2}}, {"words": 1}):
        restore_state(state, trainer, "file", reset_lr_scheduler=True)
    assert compared == [{"words": 1}] * 2


def test_functional_options():
    """These options do not affect the shape of any weight."""
    found = {
        name: set(functional_options(SimpleNamespace(_name=name)))
        for name in MODEL_DATACLASS_REGISTRY
        if MODEL_DATACLASS_REGISTRY[name].__module__.startswith("fairseq_casrnn")
    }
    assert found["cas_lstm"] & found["cas_lstm_lm"] & found["cas_lstm_tagger"] >= {"lam"}
    assert found["cas_lstm_sentence_encoder"] >= {"lam", "mlp_activation", "pooling"}
    assert found["sentence_state_lstm_tagger"] >= {"no_boundaries", "num_steps"}
    assert found["shortcut_lstm_tagger"] >= {"connection"}
    assert found["shortcut_lstm_sentence_encoder"] >= {"mlp_activation", "pooling", "connection"}
    assert found["transformer_sentence_encoder"] >= {"encoder_attention_heads"}
    for options in found.values():
        assert not options & {"num_cells", "dropout"}
        assert not any(re.search("size|dim|layers|embed_path", name) for name in options)


@pytest.mark.parametrize(
    ("kept", "now", "refused"),
    [
        ({"meanings": {"lam": "0.25"}}, "0.25", False),
        ({"meanings": {"lam": "0.25"}}, "0.5", True),
        ({"meanings": {}}, "0.5", False),  # the option is newer than the checkpoint
        ({"meanings": {}}, "0.25", True),
        ({"epoch": 3}, "0.25", False),  # the checkpoint says nothing about options
    ],
)
def test_changed_functional_options_are_refused(kept, now, refused):
    model = MODEL_DATACLASS_REGISTRY["cas_lstm"](_name="cas_lstm", lam=now)
    trainer = SimpleNamespace(cfg=SimpleNamespace(model=model))
    before = kept.get("meanings", {}).get("lam", "0.5")
    message = f"resumed has --lam {before}, not --lam {now}; give it"
    with pytest.raises(UserError, match=message) if refused else contextlib.nullcontext():
        check_functional_options(trainer, kept)
