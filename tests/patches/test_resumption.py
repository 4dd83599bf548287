"""What is kept in checkpoints beside fairseq's own, and when it is taken back."""

import pytest

from fairseq_casrnn.models.extra_state import after_loading


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
def test_resumed_or_started_anew(arguments, named, resumes):
    taken = []
    piece = after_loading(lambda *args: taken.append(args))
    assert piece({"epoch": 3}, "trainer", "file", *arguments, **named) == {"epoch": 3}
    assert taken == [("trainer", {"epoch": 3}, resumes)]


def test_no_checkpoint():
    def take(*args):
        raise AssertionError("nothing is there to be taken")

    assert after_loading(take)(None, "trainer", "file") is None
