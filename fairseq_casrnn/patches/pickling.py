"""Copying and pickling of fairseq's tasks, models and options."""

from __future__ import annotations

import copyreg
from enum import Enum


def reject_private_attribute(state, name: str) -> None:
    """Before ``StatefulContainer.__getattr__``: raise AttributeError for private names.

    ``copy`` and ``pickle`` look up ``__setstate__`` before the object has any attribute, which
    fairseq's method answers with infinite recursion.
    """
    if name.startswith("_"):
        raise AttributeError(name)


def register_choice_enums() -> None:
    """Pickle fairseq's choice enums by their values; they all have the name ``Choices``."""
    from fairseq.dataclass import constants

    def reduce(kind: type[Enum]):
        if kind.__name__ != "Choices":
            return kind.__qualname__  # importable by its name
        return constants.ChoiceEnum, ([choice.value for choice in kind],)

    copyreg.pickle(constants.StrEnumMeta, reduce)
