"""A model that is not finite never passes for a good one: the training ends, and nothing is saved.

Accuracy, F1 and BLEU of a model whose weights are NaN are ordinary numbers, which may well be
greater than those of a model in its first epochs.
"""

import math

import torch

from fairseq_casrnn.errors import UserError

REMEDY = "go on from a checkpoint of before, with a lower --lr or with --clip-norm"


def check_weights(trainer) -> None:
    """Raise UserError where a parameter of the model that ``trainer`` trains is not finite."""
    for name, parameter in trainer.get_model().named_parameters():
        if not torch.isfinite(parameter).all():
            raise UserError(
                f"the training has diverged: after {trainer.get_num_updates()} updates the weights "
                f"{name} are not finite, and they were not saved; {REMEDY}"
            )


def check_before_saving(cfg, trainer, *args, **kwargs) -> None:
    """Save no weights that are not finite."""
    check_weights(trainer)


def check_validation(original, cfg, trainer, *args, **kwargs):
    """Validate no weights that are not finite, and count no metric that is not."""
    check_weights(trainer)
    metrics = original(cfg, trainer, *args, **kwargs)
    # One that is not defined here, such as the WCPA of text without brackets, is no success.
    return [metric if math.isfinite(metric) else None for metric in metrics]


def check_loss(cfg, trainer, stats, *args, **kwargs) -> None:
    """Raise UserError for a validation loss that is not finite."""
    loss = float(stats.get("loss", 0.0))
    if not math.isfinite(loss):
        raise UserError(
            f"the training has diverged: after {trainer.get_num_updates()} updates the validation "
            f"loss is {loss}, and the model was not saved; {REMEDY}"
        )
