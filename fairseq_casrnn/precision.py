"""``--float32-matmul-precision`` for all of fairseq's programs, and denormal numbers.

The option calls ``torch.set_float32_matmul_precision``. With "medium" torch may compute products of
float32 matrices in bfloat16 internally (on CPUs with AMX), with "high" and "medium" in TF32 (on
GPUs). On CPUs with AVX512_BF16 the compiled engine and :mod:`.recurrence.products` do so even
without AMX. Inputs, sums, gates and states stay float32.
"""

from __future__ import annotations

import argparse
import logging
import os

import torch

from .errors import UserError

logger = logging.getLogger(__name__)

CHOICES = ("highest", "high", "medium")
VARIABLE = "CASRNN_FLOAT32_MATMUL_PRECISION"
"""Environment variable with the same values, for fairseq-hydra-train and worker processes."""


def set_precision_from_environment() -> None:
    """Set the precision of the environment variable, if it is set.

    Raises:
        UserError: its value is invalid.
    """
    asked = os.environ.get(VARIABLE)
    if asked:
        if asked not in CHOICES:
            raise UserError(
                f"environment variable {VARIABLE} is {asked!r}; choose from {', '.join(CHOICES)}"
            )
        torch.set_float32_matmul_precision(asked)


def flush_denormals() -> bool:
    """Flush numbers below 1.2e-38 to zero in this thread and its children; whether that works.

    Adam's average gradient of a word that has not occurred for about 800 updates becomes denormal
    and stays so: 0.9 times the smallest denormal number is rounded to itself. CPUs, unlike GPUs,
    are ten times slower with denormal numbers.
    """
    return torch.set_flush_denormal(True)


def add_option_to_common(result, parser, dataclass, *args, **kwargs) -> None:
    """After ``gen_parser_from_dataclass``: add the option to fairseq's common options."""
    from fairseq.dataclass.configs import CommonConfig

    if isinstance(dataclass, CommonConfig):
        add_option(parser)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--float32-matmul-precision``, which takes effect when it is parsed."""
    parser.add_argument(
        "--float32-matmul-precision",
        choices=CHOICES,
        action=_SetPrecision,
        help="precision inside products of float32 matrices (torch.set_float32_matmul_precision)",
    )


class _SetPrecision(argparse.Action):
    def __call__(self, parser, namespace, value, option_string=None):
        setattr(namespace, self.dest, value)
        if os.environ.get(VARIABLE) != value:  # fairseq parses its command line several times
            logger.info("float32 matmul precision: %s", value)
        os.environ[VARIABLE] = value  # for processes started by this one
        torch.set_float32_matmul_precision(value)
