"""``--float32-matmul-precision`` of all programs, and denormal numbers.

The option calls ``torch.set_float32_matmul_precision``. With "medium" torch may compute products of
float32 matrices in bfloat16 internally (on CPUs with AMX), with "high" and "medium" in TF32 (on
GPUs). On CPUs with AVX512_BF16 the compiled engine and :mod:`.recurrence.products` do so even
without AMX. Inputs, sums, gates and states stay float32.

"int8" is for inference on the CPU with the compiled engine. The products of the recurrent layers,
the attention and the output layer are computed in integers: weights are quantised symmetrically
with a scale for each output feature, the other factor dynamically with a scale for each row. Sums
are exact, so that no row's result depends on another row. Everything else is as with "medium".
"""

from __future__ import annotations

import argparse
import logging
import os

import torch

from fairseq_casrnn.errors import UserError

logger = logging.getLogger(__name__)

TRAINING_CHOICES = ("highest", "high", "medium")
CHOICES = (*TRAINING_CHOICES, "int8")
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
        set_precision(asked, f"environment variable {VARIABLE}")


_int8 = False


def set_precision(precision: str, asked: str = "precision") -> None:
    """Set one of :data:`CHOICES`; in messages, ``asked`` names the option or variable.

    Raises:
        UserError: int8 where the compiled engine cannot compute it.
    """
    global _int8
    if precision == "int8" or _int8:
        if precision == "int8" and (reason := why_not_int8()) is not None:
            raise UserError(f"{asked} int8: {reason}; choose medium")
        from fairseq_casrnn.recurrence import cpp

        cpp.extension()[0].set_int8(precision == "int8")
    _int8 = precision == "int8"
    torch.set_float32_matmul_precision("medium" if _int8 else precision)


def why_not_int8() -> str | None:
    """Why there is no int8 here, or None."""
    from fairseq_casrnn.recurrence import choose, cpp

    module, missing = cpp.extension()
    if module is None:
        return f"the compiled engine is not available: {missing}"
    if (engine := choose(None, "cpu").name) != "cpp":
        return f"CASRNN_ENGINE is {engine}, and only cpp computes in int8"
    if not module.can_quantise():
        return "this processor has no fast products of such integers (AVX512_VNNI)"
    return None


def check_training() -> None:
    """Refuse to train with int8.

    Raises:
        UserError: it is set.
    """
    if _int8:
        raise UserError(
            "--float32-matmul-precision int8 is for inference only, it has no gradients; train "
            "with medium, and give int8 to the programs that use the model"
        )


def check_device(args: argparse.Namespace) -> None:
    """Refuse int8 where a program of fairseq would run on a GPU.

    Raises:
        UserError: it would.
    """
    if _int8 and torch.cuda.is_available() and not getattr(args, "cpu", True):
        raise UserError(
            "--float32-matmul-precision int8 is for the CPU, and there is a GPU; add --cpu, or "
            "choose medium"
        )


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
        help="precision inside products of float32 matrices (torch.set_float32_matmul_precision); "
        "int8, for inference on a CPU, quantises the compiled engine's",
    )


class _SetPrecision(argparse.Action):
    def __call__(self, parser, namespace, value, option_string=None):
        setattr(namespace, self.dest, value)
        if os.environ.get(VARIABLE) != value:  # fairseq parses its command line several times
            logger.info("float32 matmul precision: %s", value)
        os.environ[VARIABLE] = value  # for processes started by this one
        set_precision(value, option_string or "--float32-matmul-precision")
