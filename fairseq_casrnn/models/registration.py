"""Registers models and named architectures with fairseq, such that they can be pickled."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fairseq.models import register_model, register_model_architecture


def camel_case(name: str) -> str:
    """``cas_lstm`` as ``CasLstm``."""
    return name.title().replace("_", "")


def add_to_module(cls: type, module: str) -> type:
    """Make a dynamically created class an attribute of ``module``, where pickle looks it up."""
    cls.__module__, cls.__qualname__ = module, cls.__name__
    setattr(sys.modules[module], cls.__name__, cls)
    return cls


def register_subclass(base: type, name: str, model: str, config: type, **attributes: Any) -> None:
    """Register a subclass of ``base`` with these attributes as the model ``model``.

    Args:
        base: a class of models; the subclass is added to its module.
        name: the subclass's name in lower case, with underscores.
        model: the model's name.
        config: the dataclass of its options.
        attributes: class attributes and static methods.
    """
    cls = add_to_module(type(camel_case(name), (base,), attributes), base.__module__)
    register_model(model, dataclass=config)(cls)


def register_architecture(model: str, arch: str, defaults: Mapping[str, Any]) -> None:
    """Register ``arch``: ``model`` with other defaults of some options."""

    def architecture(args: Namespace) -> None:
        for name, value in defaults.items():
            setattr(args, name, getattr(args, name, value))

    register_model_architecture(model, arch)(architecture)


class PicklableModel:
    """A mixin for models, before fairseq's class in the bases.

    They can be copied and pickled even after fairseq has prepared them for inference.
    """

    def __getstate__(self) -> dict:
        """Leave out the local function that fairseq puts in place of ``train`` for inference."""
        return {name: value for name, value in vars(self).items() if name != "train"}
