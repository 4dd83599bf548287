"""Stop a diverged training without saving it.

Accuracy, F1 and BLEU of a model with NaN weights are ordinary numbers. They can be higher than
those of the first epochs, so the diverged model would become the best checkpoint.
"""

import math

import torch

from fairseq_casrnn.errors import UserError

REMEDY = "continue from an earlier checkpoint, with a lower --lr or with --clip-norm"


def check_weights(trainer) -> None:
    """Raise UserError if a parameter of the trained model is not finite."""
    for name, parameter in trainer.get_model().named_parameters():
        if not torch.isfinite(parameter).all():
            raise UserError(
                f"the training has diverged: after {trainer.get_num_updates()} updates the weights "
                f"{name} are not finite, and they were not saved; {REMEDY}"
            )


def check_before_saving(cfg, trainer, *args, **kwargs) -> None:
    """Before ``save_checkpoint``: check the weights."""
    check_weights(trainer)


def check_validation(original, cfg, trainer, *args, **kwargs):
    """Around ``validate``: check the weights, and replace metrics that are not finite by None."""
    check_weights(trainer)
    metrics = original(cfg, trainer, *args, **kwargs)
    # A metric may be undefined, such as the WCPA of text without brackets.
    return [metric if math.isfinite(metric) else None for metric in metrics]


def check_loss(cfg, trainer, stats, *args, **kwargs) -> None:
    """Before ``get_valid_stats``: raise UserError if the validation loss is not finite."""
    loss = float(stats.get("loss", 0.0))
    if not math.isfinite(loss):
        raise UserError(
            f"the training has diverged: after {trainer.get_num_updates()} updates the validation "
            f"loss is {loss}, and the model was not saved; {REMEDY}"
        )
