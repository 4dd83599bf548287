"""What an engine is, which there are, and the one place where one of them is chosen.

======================  =======================================================================
``reference``           the cell's own step under autograd, any dtype: the specification
``eager``               one ``autograd.Function`` with hand-written backward, for all cells
``cpp``                 the same loop in C++, where it was compiled at installation
``triton``              the same loop in kernels on a GPU, where Triton works
======================  =======================================================================

The engine is chosen by ``engine=`` of a layer, else by the environment variable ``CASRNN_ENGINE``,
else it is ``triton`` on a GPU and ``cpp`` on the CPU. One that is not available is replaced by the
device's best other one; where the one chosen does not support what it is given, its ``fallback``
steps in, and so on until ``reference``, which takes everything. A line in the log says why.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import torch

from ..errors import UserError

logger = logging.getLogger(__name__)

logged: set[tuple] = set()
"""What :func:`log_once` has said."""


class Engine:
    """PyTorch operations, which is what an engine does that has nothing faster.

    The methods ``available`` and ``supports…`` return None for yes, and for no the reason, as half
    a sentence for the log.

    Attributes:
        name: what ``engine=`` and ``CASRNN_ENGINE`` call it.
        takes_input_product: whether :meth:`run` takes an :class:`.inputs.InputProduct` as it is.
        sentence_state: None, or a function ``(options, x, lengths, params)`` that runs all steps of
            a sentence-state LSTM; otherwise it is put together from :meth:`word_ops`.
    """

    name: str
    takes_input_product = False
    sentence_state: Callable | None = None

    def available(self, device: str) -> str | None:
        """Whether it can run on that type of device at all; if not, also what to do."""
        return None

    def fallback(self, device: str) -> str:
        """The engine that steps in for what this one does not support."""
        return "reference"

    def supports(self, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params) -> str | None:
        """Whether it has :meth:`run` for these."""
        return None

    def run(self, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params):
        """A layer over time; see :func:`fairseq_casrnn.recurrence.run`."""
        raise NotImplementedError

    def supports_routing(self, cell, gx, weight_hh, h0, c0, routing) -> str | None:
        """Whether it has ``run_routed``, and whether that is faster."""
        return "it computes all cells of a mixture"

    def supports_decode(self, d) -> str | None:
        """Whether it has :meth:`decode` for a :class:`.attention.Decode`."""
        return None

    def decode(self, d):
        """The decoder's loop; see :func:`.attention.run_reference`."""
        raise NotImplementedError

    def decode_steps(self, d, source, input_feed: bool):
        """The decoder step by step, without gradients: :class:`.attention_cpp.Steps`, or None."""
        return None

    def supports_sentence_state(self, x, lengths, params) -> str | None:
        """Whether it has its own of :attr:`sentence_state` or :meth:`word_ops` for these."""
        return None

    def word_ops(self, x, lengths):
        """The element-wise part of a sentence-state LSTM's step."""
        from .sentence_state import TorchWordOps

        return TorchWordOps(x, lengths)

    def supports_products(self, *tensors) -> str | None:
        """Whether it has matrix products of its own for these tensors (:mod:`.products`)."""
        return "it has torch's matrix products"

    def supports_loss(self, weight) -> str | None:
        """Whether it has :meth:`cross_entropy` for a vocabulary with this weight."""
        return "it has no loss without a table of logits"

    def cross_entropy(self, x, weight, bias, target, smoothing: float, pad: int):
        """See :func:`.cross_entropy.cross_entropy`."""
        raise NotImplementedError

    def supports_best_sums(self, lprobs, scores) -> str | None:
        """Whether it picks beam search's candidates in one pass."""
        return "it has torch's topk"


ENGINES: dict[str, Engine] = {}
"""All engines, available or not, by their names; :mod:`.engines` fills it."""


def installed() -> list[str]:
    """The names of the engines that could run here, on the CPU or on a GPU."""
    return [name for name, engine in ENGINES.items() if engine.available("cpu") is None]


def default(device: str = "cpu") -> str:
    """The engine taken for this type of device unless another one is asked for."""
    best = preferred(device)
    return best if ENGINES[best].available(device) is None else "eager"


def preferred(device: str) -> str:
    """The fastest engine for this type of device, available or not."""
    return "triton" if device == "cuda" else "cpp"


def choose(
    name: str | None = None,
    device: str = "cpu",
    supports: Callable[[Engine], str | None] | None = None,
) -> Engine:
    """The engine that runs, and a line in the log, once, if it is not the one asked for.

    Args:
        name: an engine; None or "auto" for the environment's or the default.
        device: type of the device it is to run on.
        supports: asks an engine whether it supports what it is to do, and returns its answer.

    Raises:
        UserError: no engine of that name.
    """
    engine = by_name(name, device)
    if supports is None or (reason := supports(engine)) is None:
        return engine
    other = ENGINES[engine.fallback(device)]
    while supports(other) is not None:
        other = ENGINES[other.fallback(device)]
    leave(engine, other, reason)
    return other


def leave(engine: Engine, other: Engine, reason: str) -> None:
    """Log once that ``other`` steps in."""
    log_once(logging.INFO, "engine '%s' leaves this to '%s': %s", engine.name, other.name, reason)


def by_name(name: str | None, device: str) -> Engine:
    """:func:`choose` without looking at what it is to do."""
    asked = "engine"
    if name is None or name == "auto":
        asked, name = "environment variable CASRNN_ENGINE: engine", os.environ.get("CASRNN_ENGINE")
        if not name or name == "auto":
            name = preferred(device)
    engine = ENGINES.get(name)
    if engine is None:
        raise UserError(f"{asked} {name!r} is unknown; choose from {', '.join(ENGINES)}")
    if (reason := engine.available(device)) is None:
        log_once(logging.INFO, "recurrence engine: %s", name)
        return engine
    # A checkpoint, too, names the engine of the machine it was trained on.
    other = default(device)
    log_once(
        logging.WARNING, "engine '%s' is not available, '%s' runs instead: %s", name, other, reason
    )
    return ENGINES[other]


def log_once(level: int, message: str, *arguments) -> None:
    """Log a line the first time; never while torch.compile or torch.export look on."""
    if (message, arguments) not in logged and not torch.compiler.is_compiling():
        logged.add((message, arguments))
        logger.log(level, message, *arguments)


def autocast(device: str) -> bool:
    """Whether torch.autocast is active for this type of device."""
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)
