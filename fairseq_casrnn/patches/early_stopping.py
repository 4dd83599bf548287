"""Early stopping and ReduceLROnPlateau survive an interruption, and wait for a first success.

fairseq 0.12.3 counts for how long validation has not become better in attributes of a function, for
``--patience``, and in torch's scheduler, for ``--lr-scheduler reduce_lr_on_plateau``, and saves
neither: a resumed training takes its first validation for the best so far and goes on longer than
one that was not interrupted. Nor has a checkpoint of the end of an epoch the step of that
scheduler: it is written before. Nor is it known that a training had stopped early, and another
epoch follows.

Nothing is counted before the metric, of those that rise, is above zero: F1 is 0 as long as a tagger
finds no span, and BLEU while no four words are right. Both stay there for some epochs on small
data, in which the loss falls.
"""

import logging

from fairseq_casrnn.errors import UserError

from .extra_state import after_loading
from .programs import program_module

ATTRIBUTES = ("best", "num_runs")  # of fairseq_cli.train.should_stop_early
COUNTERS = ("num_bad_epochs", "cooldown_counter")  # of torch's ReduceLROnPlateau

logger = logging.getLogger(__name__)


def keep(trainer, filename, extra_state: dict) -> None:
    """Keep how often validation has not become better."""
    function = program_module("train").should_stop_early
    counted = {name: getattr(function, name, None) for name in ATTRIBUTES}
    extra_state["early_stopping"] = {k: v for k, v in counted.items() if v is not None}


@after_loading
def restore(trainer, extra_state: dict, resumes: bool) -> None:
    """Take it back."""
    if not resumes or "early_stopping" not in extra_state:
        return
    counted = extra_state["early_stopping"]
    for name in ATTRIBUTES:
        if name in counted:
            setattr(program_module("train").should_stop_early, name, counted[name])
    trainer.validations_without_gain = counted.get("num_runs", 0)


def stay_stopped(original, cfg, trainer, *args, **kwargs):
    """Train for an epoch, unless the training that resumes had stopped early."""
    without_gain = getattr(trainer, "validations_without_gain", 0)  # as the training resumed
    if not 0 < cfg.checkpoint.patience <= without_gain:
        return original(cfg, trainer, *args, **kwargs)
    logger.info(
        "no gain in the last %d validations: the training stays stopped; raise --patience to go on",
        without_gain,
    )
    return [None], True


def wait_for_success(original, cfg, value):
    """``should_stop_early``, which counts no 0 of a metric that rises."""
    rising = cfg.checkpoint.maximize_best_checkpoint_metric
    function = program_module("train").should_stop_early
    if rising and value == 0 and not getattr(function, "best", None):
        return False
    return original(cfg, value)


def wait_for_success_on_plateau(original, self, epoch, val_loss=None):
    """The same in the scheduler's ``step``."""
    plateau = self.lr_scheduler
    nothing_yet = plateau.mode == "max" and val_loss == 0 and plateau.best <= 0
    return original(self, epoch, None if nothing_yet else val_loss)


@after_loading
def step_plateau(trainer, extra_state: dict, resumes: bool) -> None:
    """Make the scheduler's step that a checkpoint of the end of an epoch lacks."""
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

    if resumes and isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule):
        place = extra_state["train_iterator"]
        if place.get("iterations_in_epoch") == 0:  # of the next epoch
            trainer.lr_step(place["epoch"] - 1, extra_state.get("val_loss"))


def keep_counters(state: dict, scheduler) -> dict:
    """The scheduler's state with the counters that fairseq leaves out."""
    return {**state, **{name: getattr(scheduler.lr_scheduler, name) for name in COUNTERS}}


def restore_counters(original, self, state: dict) -> None:
    """Take them back.

    Raises:
        UserError: the state is of another scheduler.
    """
    if "best" not in state:
        raise UserError(
            "the checkpoint was trained with another --lr-scheduler than reduce_lr_on_plateau; "
            "give that one, or --reset-lr-scheduler"
        )
    original(self, state)
    for name in COUNTERS:
        if name in state:  # not in checkpoints of fairseq's own
            setattr(self.lr_scheduler, name, state[name])
