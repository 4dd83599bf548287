"""What is counted for ``--lr-scheduler reduce_lr_on_plateau``, in checkpoints."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from fairseq_casrnn.errors import UserError


def plateau():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)


def test_the_epochs_without_gain_are_counted_on():
    before, after = plateau(), plateau()
    for _ in range(3):
        before.step(1.0)
    state = ReduceLROnPlateauLRSchedule.state_dict(SimpleNamespace(lr_scheduler=before))
    ReduceLROnPlateauLRSchedule.load_state_dict(SimpleNamespace(lr_scheduler=after), state)
    assert (after.best, after.num_bad_epochs, after.cooldown_counter) == (1.0, 2, 0)


def test_a_checkpoint_of_fairseqs_own_has_no_counters():
    schedule = SimpleNamespace(lr_scheduler=plateau())
    ReduceLROnPlateauLRSchedule.load_state_dict(schedule, {"best": 2.0, "last_epoch": 3})
    assert (schedule.lr_scheduler.best, schedule.lr_scheduler.num_bad_epochs) == (2.0, 0)


def test_the_state_of_another_scheduler_is_refused():
    with pytest.raises(UserError, match="trained with another --lr-scheduler than reduce_lr_on_pl"):
        ReduceLROnPlateauLRSchedule.load_state_dict(SimpleNamespace(lr_scheduler=plateau()), {})
