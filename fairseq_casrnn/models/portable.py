"""Models and hubs that can be copied and pickled, in spite of what fairseq puts into them."""

from __future__ import annotations

import copyreg

from fairseq.dataclass import constants
from fairseq.tasks.fairseq_task import StatefulContainer

from ..wrapping import wrap


class Portable:
    """A mixin for models, before fairseq's own class."""

    def __getstate__(self) -> dict:
        """Without the function that fairseq has instead of ``train`` in a model for inference."""
        return {name: value for name, value in vars(self).items() if name != "train"}


def _choices(kind: type):
    """How pickle writes a type of choices: fairseq calls all of them ``Choices``."""
    if kind.__name__ != "Choices":
        return kind.__qualname__  # it can be found
    return constants.ChoiceEnum, ([choice.value for choice in kind],)


def _getattr(original, self, name):
    """``copy`` and ``pickle`` ask an object without any attribute yet for ``__setstate__``."""
    if name.startswith("_"):
        raise AttributeError(name)
    return original(self, name)


wrap(StatefulContainer, "__getattr__", _getattr)
copyreg.pickle(constants.StrEnumMeta, _choices)
