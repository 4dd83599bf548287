"""What the recurrent models share: options that a cell adds, stacks built from them, checks."""

# No "from __future__ import annotations": fairseq needs the fields' types as objects. It knows
# Optional[str], but not str | None.
# ruff: noqa: UP045
import contextlib
import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Optional, get_type_hints

from fairseq.dataclass import FairseqDataclass

from .. import layers
from ..cells import FAMILIES
from ..errors import UserError, as_option, check_at_least
from ..layers import RecurrentStack
from .loading_checkpoint import is_loading_checkpoint
from .registration import add_to_module, camel_case

logger = logging.getLogger(__name__)
LAYERS = ("encoder_layers", "decoder_layers")
AUTO = "auto"
DECAY_HELP = (
    "factor applied to the temperature after each epoch, or auto: the temperature "
    "falls to --temperature-floor by the end of --max-epoch or --max-update; if "
    "neither is given, by 0.9 per epoch"
)


@dataclass
class EngineConfig:
    """The option of all models with recurrent layers."""

    engine: Optional[str] = field(
        default=None, metadata={"help": "recurrence engine: auto, cpp, triton, eager or reference"}
    )


def config_for(name: str, base: type) -> type:
    """``base`` with the options of the family ``name`` added, as a dataclass."""
    options = FAMILIES[name].options
    types = get_type_hints(options)
    fields = [
        (option.name, str, field(default=AUTO, metadata={"help": DECAY_HELP}))
        if option.name == "temperature_decay"
        else (
            option.name,
            types[option.name],
            field(default=option.default, metadata=option.metadata),
        )
        for option in dataclasses.fields(options)
    ]
    title = camel_case(name) + base.__name__
    return add_to_module(dataclasses.make_dataclass(title, fields, bases=(base,)), __name__)


def build_stack(cell: str, cfg: FairseqDataclass, *sizes: Any, **kwargs: Any) -> RecurrentStack:
    """A stack of ``cell`` with the options of ``cfg``; ``sizes`` and ``kwargs`` go to the layer.

    Raises:
        UserError: options out of range, named as on the command line.
    """
    names = option_names(cell)
    options = SimpleNamespace(**{name: getattr(cfg, name) for name in names if hasattr(cfg, name)})
    decay = getattr(options, "temperature_decay", None)
    if decay == AUTO:
        del options.temperature_decay  # the layer's default, until the length of training is known
    elif decay is not None:
        options.temperature_decay = _number(decay)
    with named_as_options(names):
        kwargs |= {"options": options, "engine": cfg.engine}
        stack = layers.build(cell, *sizes, **kwargs)
    stack.anneals_with_training = decay == AUTO  # type: ignore[assignment] # read in annealing.py
    return stack


def option_names(cell: str) -> list[str]:
    """Names of the options that ``cell`` adds."""
    return [option.name for option in dataclasses.fields(FAMILIES[cell].options)]


def _number(decay: str | float) -> float:
    """``--temperature-decay``, a number in older checkpoints, as a float. Raises UserError."""
    try:
        return float(decay)
    except ValueError:
        raise UserError(
            f"--temperature-decay is '{decay}'; it must be auto or a number in (0, 1]"
        ) from None


@contextlib.contextmanager
def named_as_options(names: Sequence[str]) -> Iterator[None]:
    """Rewrite layer arguments ``names`` in UserErrors as options: ``num_cells``, --num-cells."""
    try:
        yield
    except UserError as error:
        # With word boundaries: "temperature" must not match in "temperature_floor".
        pattern = rf"\b({'|'.join(names)})\b" if names else r"(?!)"
        message = re.sub(pattern, lambda match: as_option(match[0]), str(error))
        raise UserError(message) from None


def reads_lower_cell(cell: str) -> bool:
    """Whether the upper layers of a family read the cell of the layer below."""
    family = FAMILIES[cell]
    return family.make_cell(1, family.options()).lower_cell


def warn_of_single_layers(cell: str, cfg: FairseqDataclass) -> None:
    """Warn if a cell that reads the cell below is used with single layers only.

    There is no warning for a trained model, whose depth is fixed.
    """
    if is_loading_checkpoint():
        return
    names = [name for name in LAYERS if hasattr(cfg, name)]
    bottom = FAMILIES[cell].make_cell(0, FAMILIES[cell].options())
    if reads_lower_cell(cell) and all(getattr(cfg, name) == 1 for name in names):
        logger.warning(
            "%s with a single layer is just its bottom cell, %s, which has no cell below to read; "
            "give %s 2 or more",
            cell,
            type(bottom).__name__,
            " or ".join(as_option(name) for name in names),
        )


def dropout_option(cfg: FairseqDataclass, name: str) -> float:
    """The option ``name``, by default ``--dropout``."""
    value = getattr(cfg, name)
    return cfg.dropout if value is None else value


def check_shared_output(cfg: FairseqDataclass, out_embed_dim: int) -> None:
    """Raise UserError for options that an output embedding shared with the input excludes."""
    if cfg.adaptive_softmax_cutoff is not None:
        raise UserError(
            "--adaptive-softmax-cutoff cannot share the output embedding; drop one of them"
        )
    if cfg.decoder_embed_dim != out_embed_dim:
        raise UserError(
            "sharing the decoder's input and output embeddings needs --decoder-embed-dim "
            f"({cfg.decoder_embed_dim}) equal to --decoder-out-embed-dim ({out_embed_dim})"
        )


def check_sizes(cfg: FairseqDataclass, names: Iterable[str]) -> None:
    """Raise UserError for a size option below 1."""
    check_at_least(1, **{name: getattr(cfg, name) for name in names})


def check_ranges(cfg: FairseqDataclass, names: Iterable[str]) -> None:
    """Raise UserError for a number that is not positive, such as a range of initial weights."""
    for name in names:
        value = getattr(cfg, name)
        if not 0 < value < float("inf"):
            option = as_option(name)
            raise UserError(f"{option} is {value}; it must be greater than 0")


def check_probabilities(cfg: FairseqDataclass, names: Iterable[str]) -> None:
    """Raise UserError for a probability outside [0, 1]."""
    for name in names:
        value = getattr(cfg, name)
        if value is not None and not 0 <= value <= 1:
            option = as_option(name)
            raise UserError(f"{option} is {value}; it must lie in [0, 1]")
