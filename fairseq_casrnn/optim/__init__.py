"""Optimizers that fairseq lacks; importing this registers them."""

from . import torch_adam  # noqa: F401
