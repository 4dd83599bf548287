"""Errors for models of the wrong kind, and for folders without a checkpoint."""

from types import SimpleNamespace

import pytest

import fairseq_casrnn
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import CLASSIFIER, LANGUAGE_MODEL, TAGGER, TRANSLATION, check_kind
from fairseq_casrnn.runs.layout import find_checkpoint

TRAINED = {
    CLASSIFIER: ("sentence_classification", "cas_lstm_sentence_encoder"),
    TAGGER: ("sequence_tagging", "cas_lstm_tagger_tiny"),
    TRANSLATION: ("translation", "cas_lstm_iwslt"),
    LANGUAGE_MODEL: ("stateful_language_modeling", "cas_lstm_lm_ptb"),
}


def options(task, model):
    return SimpleNamespace(task=SimpleNamespace(_name=task), model=SimpleNamespace(_name=model))


@pytest.mark.parametrize("kind", TRAINED, ids=lambda kind: kind.name)
def test_model_of_another_kind(kind):
    fairseq_casrnn.register()
    for wanted in TRAINED:
        if wanted == kind:
            check_kind(options(*TRAINED[kind]), wanted, "x.pt")
            continue
        with pytest.raises(UserError) as caught:
            check_kind(options(*TRAINED[kind]), wanted, "x.pt")
        message = f"x.pt is a {kind.name}, not a {wanted.name}; use {kind.command}"
        assert str(caught.value) == message


def test_model_of_an_unknown_kind():
    fairseq_casrnn.register()
    for cfg in (None, options("masked_lm", "roberta")):
        with pytest.raises(UserError, match=r"x\.pt is not a tagger; check the path"):
            check_kind(cfg, TAGGER, "x.pt")


def test_folder_that_contains_runs(tmp_path):
    """``casrnn prepare`` and ``--out`` make such folders; the message names a run in them."""
    run = tmp_path / "out" / "bicas2" / "seed1"
    run.mkdir(parents=True)

    def error(folder):
        with pytest.raises(UserError) as caught:
            find_checkpoint(folder)
        return str(caught.value)

    assert error(tmp_path).endswith("; check the path")
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        (run / name).touch()
    for folder in (tmp_path, tmp_path / "out", tmp_path / "out" / "bicas2"):
        assert error(folder).endswith(f"; did you mean {run}?")
    other = tmp_path / "out" / "cnn" / "seed2"
    other.mkdir(parents=True)
    (other / "checkpoint_last.pt").touch()
    assert error(tmp_path).endswith(f"; name a run in it, such as {run}")
