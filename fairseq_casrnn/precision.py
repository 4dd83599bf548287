"""``--float32-matmul-precision`` for all of fairseq's programs: torch's own switch.

With "medium" torch may compute products of float32 matrices in bfloat16 inside (on CPUs that have
AMX), with "high" and "medium" in TF32 (on GPUs). On CPUs that have AVX512_BF16, with AMX or
without, the compiled engine and :mod:`.recurrence.products` do so themselves. Inputs, sums, gates
and states stay float32.
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
"""Says the same where there is no command line: for fairseq-hydra-train and worker processes."""


def obey_environment() -> None:
    """Set the precision that the environment variable asks for, if it does.

    Raises:
        UserError: the variable holds no precision.
    """
    asked = os.environ.get(VARIABLE)
    if asked:
        if asked not in CHOICES:
            raise UserError(
                f"environment variable {VARIABLE} is {asked!r}; choose from {', '.join(CHOICES)}"
            )
        torch.set_float32_matmul_precision(asked)


def flush_denormals() -> bool:
    """Take numbers below 1.2e-38 for zero, in this thread and all that it starts; whether it can.

    Adam's average of the gradients of a word that has not occurred for some 800 updates gets there,
    and does not leave: 0.9 times the smallest number above zero is rounded to the same. Processors
    take ten times as long for such numbers, GPUs do not.
    """
    return torch.set_flush_denormal(True)


def add_option_to_common(result, parser, dataclass, *args, **kwargs) -> None:
    """Give each of fairseq's parsers the option, after the first of its groups of options."""
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
        os.environ[VARIABLE] = value  # processes started from here do the same
        torch.set_float32_matmul_precision(value)
