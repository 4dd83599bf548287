"""Optimizers that fairseq lacks, and less work for the host; importing this installs all."""

from . import gradient_norm, half_precision, logged_numbers, torch_adam  # noqa: F401
