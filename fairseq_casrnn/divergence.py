"""A model that is not finite never passes for a good one: the training ends, and nothing is saved.

Accuracy, F1 and BLEU of a model whose weights are NaN are ordinary numbers, which may well be
greater than those of a model in its first epochs.
"""

import logging
import math
import os

import torch

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.wrapping import program, wrap

REMEDY = "go on from a checkpoint of before, with a lower --lr or with --clip-norm"


def install() -> None:
    """Have fairseq look at weights and losses when it validates and before it saves."""
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "save_checkpoint", _save_checkpoint)
    wrap(program("train"), "validate", _validate)
    wrap(program("train"), "get_valid_stats", _get_valid_stats)


def drop_numbers() -> None:
    """Leave out every weight's norm and gradients, which fairseq prints when these are not finite.

    They come before the error; ``CASRNN_TRACEBACK=1`` in the environment shows them.
    """
    logging.getLogger("fairseq.nan_detector").addFilter(_without_numbers)


def _without_numbers(record: logging.LogRecord) -> bool:
    return os.environ.get("CASRNN_TRACEBACK") == "1"


def check_weights(trainer) -> None:
    """Raise UserError where a parameter of the model that ``trainer`` trains is not finite."""
    for name, parameter in trainer.get_model().named_parameters():
        if not torch.isfinite(parameter).all():
            raise UserError(
                f"the training has diverged: after {trainer.get_num_updates()} updates the weights "
                f"{name} are not finite, and they were not saved; {REMEDY}"
            )


def _save_checkpoint(original, cfg, trainer, epoch_itr, val_loss):
    check_weights(trainer)
    return original(cfg, trainer, epoch_itr, val_loss)


def _validate(original, cfg, trainer, *args, **kwargs):
    check_weights(trainer)
    metrics = original(cfg, trainer, *args, **kwargs)
    # One that is not defined here, such as the WCPA of text without brackets, is no success.
    return [metric if math.isfinite(metric) else None for metric in metrics]


def _get_valid_stats(original, cfg, trainer, stats, *args, **kwargs):
    loss = float(stats.get("loss", 0.0))
    if not math.isfinite(loss):
        raise UserError(
            f"the training has diverged: after {trainer.get_num_updates()} updates the validation "
            f"loss is {loss}, and the model was not saved; {REMEDY}"
        )
    return original(cfg, trainer, stats, *args, **kwargs)
