"""Early stopping and ReduceLROnPlateau across interruptions, and with metrics that start at 0.

Resuming. fairseq 0.12.3 counts validations without improvement in attributes of a function
(``--patience``) and in torch's scheduler (``--lr-scheduler reduce_lr_on_plateau``), and saves
neither. A resumed training therefore takes its first validation as the best and runs longer. An
end-of-epoch checkpoint is written before the scheduler's step, so that step is lost. A training
that had stopped early trains for another epoch when it is started again.

Several trainings in one process, as in a sweep of ``fairseq-hydra-train -m``. fairseq keeps the
best score in attributes of functions. The second training would start with the first one's: it
would save no ``checkpoint_best.pt`` until it is better, and stop early.

Metrics that start at 0. F1 is 0 until a tagger finds a span, and BLEU until four consecutive words
are right. On small data both take some epochs, while the loss falls. These epochs are not counted.
"""

import logging

from fairseq_casrnn.patches.programs import program_module

ATTRIBUTES = ("best", "num_runs")  # of fairseq_cli.train.should_stop_early
COUNTERS = ("num_bad_epochs", "cooldown_counter")  # of torch's ReduceLROnPlateau

logger = logging.getLogger(__name__)


def forget_last_training(cfg, trainer, **kwargs) -> None:
    """Before ``load_checkpoint``, which starts each training: forget the best score so far."""
    from fairseq import checkpoint_utils

    for function in (checkpoint_utils.save_checkpoint, program_module("train").should_stop_early):
        for name in ATTRIBUTES:
            vars(function).pop(name, None)


def save_counters(extra_state: dict) -> None:
    """Put the counters of ``--patience`` into the checkpoint."""
    function = program_module("train").should_stop_early
    counted = {name: getattr(function, name, None) for name in ATTRIBUTES}
    extra_state["early_stopping"] = {k: v for k, v in counted.items() if v is not None}


def restore_counters(trainer, extra_state: dict) -> None:
    """Restore the counters of ``--patience`` when resuming."""
    if "early_stopping" not in extra_state:
        return
    counted = extra_state["early_stopping"]
    for name in ATTRIBUTES:
        if name in counted:
            setattr(program_module("train").should_stop_early, name, counted[name])
    trainer.validations_without_gain = counted.get("num_runs", 0)


def stay_stopped_early(original, cfg, trainer, *args, **kwargs):
    """Around ``train``: skip the epoch if the resumed training had stopped early."""
    without_gain = getattr(trainer, "validations_without_gain", 0)  # set when resuming
    if not 0 < cfg.checkpoint.patience <= without_gain:
        return original(cfg, trainer, *args, **kwargs)
    logger.info(
        "no gain in the last %d validations: the training stays stopped; raise --patience "
        "to continue",
        without_gain,
    )
    return [None], True


def ignore_zero_metric(original, cfg, value):
    """Around ``should_stop_early``: do not count a 0 of a metric that is maximised."""
    rising = cfg.checkpoint.maximize_best_checkpoint_metric
    function = program_module("train").should_stop_early
    if rising and value == 0 and not getattr(function, "best", None):
        return False
    return original(cfg, value)


def ignore_zero_metric_on_plateau(original, self, epoch, val_loss=None):
    """Around the ``step`` of reduce_lr_on_plateau: do not count a 0 of a metric to maximise."""
    plateau = self.lr_scheduler
    nothing_yet = plateau.mode == "max" and val_loss == 0 and plateau.best <= 0
    return original(self, epoch, None if nothing_yet else val_loss)


def step_plateau(trainer, extra_state: dict) -> None:
    """When resuming, make the scheduler's step, which follows an end-of-epoch save."""
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

    if isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule):
        place = extra_state["train_iterator"]
        if place.get("iterations_in_epoch") == 0:  # at the start of the next epoch
            trainer.lr_step(place["epoch"] - 1, extra_state.get("val_loss"))


def save_plateau_counters(state: dict, scheduler) -> dict:
    """Add the counters that fairseq omits to the scheduler's state."""
    return {**state, **{name: getattr(scheduler.lr_scheduler, name) for name in COUNTERS}}


def restore_plateau_counters(original, self, state: dict) -> None:
    """Restore the scheduler's counters."""
    original(self, state)
    for name in COUNTERS:
        if name in state:  # fairseq's own checkpoints lack it
            setattr(self.lr_scheduler, name, state[name])
