"""The counters of ``--lr-scheduler reduce_lr_on_plateau`` in checkpoints."""

from types import SimpleNamespace

import torch
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from fairseq_casrnn.patches.early_stopping import step_plateau


def plateau():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)


def test_epochs_without_improvement_are_saved():
    before, after = plateau(), plateau()
    for _ in range(3):
        before.step(1.0)
    state = ReduceLROnPlateauLRSchedule.state_dict(SimpleNamespace(lr_scheduler=before))
    ReduceLROnPlateauLRSchedule.load_state_dict(SimpleNamespace(lr_scheduler=after), state)
    assert (after.best, after.num_bad_epochs, after.cooldown_counter) == (1.0, 2, 0)


def test_fairseqs_own_checkpoint_has_no_counters():
    schedule = SimpleNamespace(lr_scheduler=plateau())
    ReduceLROnPlateauLRSchedule.load_state_dict(schedule, {"best": 2.0, "last_epoch": 3})
    assert (schedule.lr_scheduler.best, schedule.lr_scheduler.num_bad_epochs) == (2.0, 0)


def test_the_missing_step_at_an_epochs_end_is_made_up():
    steps = []
    schedule = ReduceLROnPlateauLRSchedule.__new__(ReduceLROnPlateauLRSchedule)
    trainer = SimpleNamespace(lr_scheduler=schedule, lr_step=lambda *step: steps.append(step))
    for done in (7, 0):
        assert steps == []
        place = {"epoch": 3, "iterations_in_epoch": done}
        step_plateau(trainer, {"train_iterator": place, "val_loss": 2.5})
    assert steps == [(2, 2.5)]
