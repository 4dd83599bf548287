"""Tasks, models and options that can be copied and pickled, in spite of how fairseq makes them."""

from __future__ import annotations

import copyreg
from enum import Enum


def get_attribute(state, name: str) -> None:
    """``copy`` and ``pickle`` ask an object without any attribute yet for ``__setstate__``."""
    if name.startswith("_"):
        raise AttributeError(name)


def register_choices() -> None:
    """Pickle fairseq's types of choices, all of which it calls ``Choices``, by their values."""
    from fairseq.dataclass import constants

    def reduce(kind: type[Enum]):
        if kind.__name__ != "Choices":
            return kind.__qualname__  # it can be found
        return constants.ChoiceEnum, ([choice.value for choice in kind],)

    copyreg.pickle(constants.StrEnumMeta, reduce)
