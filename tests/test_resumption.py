"""What is kept in checkpoints beside fairseq's own, and when it is taken back."""

import pytest
from fairseq.trainer import Trainer

from fairseq_casrnn.resumption import keep_in_checkpoints


@pytest.fixture
def trainer(monkeypatch):
    """One that keeps what it saves, with two parts of which the second keeps nothing."""
    saved, taken = {}, []

    def save(self, filename, extra_state):
        saved[filename] = extra_state

    def load(self, filename, *args, **kwargs):
        return saved.get(filename)

    monkeypatch.setattr(Trainer, "save_checkpoint", save)
    monkeypatch.setattr(Trainer, "load_checkpoint", load)
    for key, kept in (("some", 5), ("none", None)):
        keep_in_checkpoints(
            key,
            lambda trainer, kept=kept: kept,
            lambda trainer, kept, key=key: taken.append((key, "restored", kept)),
            lambda trainer, kept, key=key: taken.append((key, "started", kept)),
        )
    trainer = Trainer.__new__(Trainer)
    trainer.taken, trainer.saved = taken, saved
    trainer.save_checkpoint("file", {"epoch": 3})
    return trainer


def test_what_is_saved(trainer):
    assert trainer.saved == {"file": {"epoch": 3, "some": 5}}


@pytest.mark.parametrize(
    ("arguments", "named", "how"),
    [
        ((), {}, "restored"),
        ((False, False, {"lr": [0.1]}), {"reset_meters": False}, "restored"),
        ((True, False), {}, "started"),
        ((False, True), {}, "started"),
        ((), {"reset_optimizer": True}, "started"),
        ((), {"reset_lr_scheduler": True}, "started"),
        ((False, False, None), {"reset_meters": True}, "started"),
    ],
)
def test_resumed_or_started_anew(trainer, arguments, named, how):
    assert trainer.load_checkpoint("file", *arguments, **named) == {"epoch": 3, "some": 5}
    assert trainer.taken == [("some", how, 5)]


def test_no_checkpoint(trainer):
    assert trainer.load_checkpoint("another") is None
    assert trainer.taken == []
