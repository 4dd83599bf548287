"""Building a model that is loaded from a checkpoint."""

import contextvars
import dataclasses

from fairseq import models
from fairseq.dataclass import FairseqDataclass
from omegaconf import OmegaConf, open_dict

_LOADING = contextvars.ContextVar("loading_checkpoint", default=False)


def is_loading_checkpoint() -> bool:
    """Whether the model being built gets its parameters and tables from a checkpoint.

    Then the files that initialised it (word vectors, a table of cells) are not needed.
    """
    return _LOADING.get()


def add_new_options(cfg: FairseqDataclass) -> None:
    """Add the defaults of options that are newer than a checkpoint to its model options.

    fairseq does this for models, but not for named architectures.
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
    """Around ``fairseq.models.build_model``: sets :func:`is_loading_checkpoint`."""
    if from_checkpoint:
        add_new_options(cfg)
    token = _LOADING.set(from_checkpoint)
    try:
        return original(cfg, task, from_checkpoint)
    finally:
        _LOADING.reset(token)
