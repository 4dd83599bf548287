"""Early stopping and learning rates on a plateau that an interruption does not set back.

Nor do they act while nothing has been learned yet that the metric could show.
"""

import logging

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.resumption import after_loading, keep_in_checkpoints
from fairseq_casrnn.wrapping import program, wrap

ATTRIBUTES = ("best", "num_runs")  # of fairseq_cli.train.should_stop_early
COUNTERS = ("num_bad_epochs", "cooldown_counter")  # of torch's ReduceLROnPlateau

logger = logging.getLogger(__name__)


def keep_patience_on_resume() -> None:
    """Keep in checkpoints for how long validation has not become better.

    fairseq 0.12.3 counts that for ``--patience`` in attributes of a function, and for
    ``--lr-scheduler reduce_lr_on_plateau`` in torch's scheduler, and saves neither: a resumed
    training takes its first validation for the best so far and goes on longer than one that was not
    interrupted. Nor has a checkpoint of the end of an epoch the step of that scheduler: it is
    written before. Nor is it known that a training had stopped early, and another epoch follows.
    """
    keep_early_stopping()
    keep_plateau()


def wait_for_the_first_success() -> None:
    """Count no epoch before the metric, of those that rise, is above zero.

    F1 is 0 as long as a tagger finds no span, and BLEU while no four words are right: both stay
    there for some epochs on small data, in which the loss falls.
    """
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

    train = program("train")

    def should_stop_early(original, cfg, value):
        rising = cfg.checkpoint.maximize_best_checkpoint_metric
        if rising and value == 0 and not getattr(train.should_stop_early, "best", None):
            return False
        return original(cfg, value)

    def step(original, self, epoch, val_loss=None):
        plateau = self.lr_scheduler
        nothing_yet = plateau.mode == "max" and val_loss == 0 and plateau.best <= 0
        return original(self, epoch, None if nothing_yet else val_loss)

    wrap(train, "should_stop_early", should_stop_early)
    wrap(ReduceLROnPlateauLRSchedule, "step", step)


def keep_early_stopping() -> None:
    """The part for ``--patience``."""
    train = program("train")

    def collect(trainer):
        return {
            name: value
            for name in ATTRIBUTES
            if (value := getattr(train.should_stop_early, name, None)) is not None
        }

    def restore(trainer, counted):
        for name, value in counted.items():
            if name in ATTRIBUTES:
                setattr(train.should_stop_early, name, value)
        trainer.validations_without_gain = counted.get("num_runs", 0)

    def epoch(original, cfg, trainer, *args, **kwargs):
        without_gain = getattr(trainer, "validations_without_gain", 0)  # as the training resumed
        if not 0 < cfg.checkpoint.patience <= without_gain:
            return original(cfg, trainer, *args, **kwargs)
        logger.info(
            "no gain in the last %d validations: the training stays stopped; "
            "raise --patience to go on",
            without_gain,
        )
        return [None], True

    keep_in_checkpoints("early_stopping", collect, restore)
    wrap(train, "train", epoch)


def keep_plateau() -> None:
    """The part for ``--lr-scheduler reduce_lr_on_plateau``."""
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

    wrap(ReduceLROnPlateauLRSchedule, "state_dict", _state_dict)
    wrap(ReduceLROnPlateauLRSchedule, "load_state_dict", _load_state_dict)

    def step(trainer, extra_state):
        if isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule):
            place = extra_state["train_iterator"]
            if place.get("iterations_in_epoch") == 0:  # of the next epoch
                trainer.lr_step(place["epoch"] - 1, extra_state.get("val_loss"))

    after_loading("plateau", step)


def _state_dict(save, self):
    return {**save(self), **{name: getattr(self.lr_scheduler, name) for name in COUNTERS}}


def _load_state_dict(load, self, state):
    if "best" not in state:
        raise UserError(
            "the checkpoint was trained with another --lr-scheduler than reduce_lr_on_plateau; "
            "give that one, or --reset-lr-scheduler"
        )
    load(self, state)
    for name in COUNTERS:
        if name in state:  # not in checkpoints of fairseq's own
            setattr(self.lr_scheduler, name, state[name])
