"""Optimizers that fairseq lacks; importing this registers them, and installs the norm."""

from . import gradient_norm, torch_adam  # noqa: F401
