"""Building a model whose parameters and tables are about to come from a checkpoint."""

import contextvars

from fairseq import models

from ..wrapping import wrap

_RESTORING = contextvars.ContextVar("restoring", default=False)


def restoring() -> bool:
    """Whether the model that is being built gets everything from a checkpoint.

    Then files that it began with (word vectors, a table of cells) need not be there any more.
    """
    return _RESTORING.get()


def _build_model(original, cfg, task, from_checkpoint=False):
    token = _RESTORING.set(from_checkpoint)
    try:
        return original(cfg, task, from_checkpoint)
    finally:
        _RESTORING.reset(token)


wrap(models, "build_model", _build_model)
