"""Building a model whose parameters and tables are about to come from a checkpoint."""

import contextvars
import dataclasses

from fairseq import models
from omegaconf import OmegaConf, open_dict

_RESTORING = contextvars.ContextVar("restoring", default=False)


def restoring() -> bool:
    """Whether the model that is being built gets everything from a checkpoint.

    Then files that it began with (word vectors, a table of cells) need not be there any more.
    """
    return _RESTORING.get()


def add_new_options(cfg) -> None:
    """Give an older checkpoint's options of a model those that have come since, at their defaults.

    fairseq does so for models, but not for architectures with a name of their own.
    """
    model = models.ARCH_MODEL_NAME_REGISTRY.get(getattr(cfg, "_name", None))
    options = models.MODEL_DATACLASS_REGISTRY.get(model)
    if options is None or not OmegaConf.is_config(cfg):
        return
    defaults = options()
    with open_dict(cfg):
        for field in dataclasses.fields(defaults):
            if field.name not in cfg:
                cfg[field.name] = getattr(defaults, field.name)


def build_model(original, cfg, task, from_checkpoint=False):
    """Around fairseq's ``models.build_model``."""
    if from_checkpoint:
        add_new_options(cfg)
    token = _RESTORING.set(from_checkpoint)
    try:
        return original(cfg, task, from_checkpoint)
    finally:
        _RESTORING.reset(token)
