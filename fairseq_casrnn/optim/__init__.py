"""Optimizers for fairseq; importing this package registers them."""

from . import torch_adam  # noqa: F401
