"""The base class of engines, their registry, and how one is chosen.

======================  =======================================================================
``reference``           the cell's own step under autograd, any dtype: the specification
``eager``               one ``autograd.Function`` with hand-written backward, for all cells
``cpp``                 the same loop in C++, where it was compiled at installation
``triton``              the same loop in kernels on a GPU, where Triton works
======================  =======================================================================

A layer's ``engine=`` chooses the engine, then the environment variable ``CASRNN_ENGINE``; without
either it is ``triton`` on a GPU and ``cpp`` on the CPU. An engine that is not available is replaced
by the best other one for the device. If the chosen engine does not support its inputs, its
``fallback`` runs instead, and so on down to ``reference``, which supports everything. A line in the
log says why.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import UserError

if TYPE_CHECKING:  # an engine does not import what a layer alone does not need
    from .attention import DecoderInputs, DecoderSteps
    from .inputs import LayerInputs, LayerOutputs, LossSpec
    from .next_words import NextWords
    from .sentence_state import WordOps
    from .sentence_state_weights import SLSTMOptions, SLSTMParameters

logger = logging.getLogger(__name__)

logged: set[tuple[str, tuple[object, ...]]] = set()
"""Messages that :func:`log_once` has logged, with their arguments."""


class Engine:
    """Base class; its defaults are those of an engine that has PyTorch operations only.

    The methods ``available`` and ``supports…`` return None for yes; for no they return the reason,
    as a clause for the log.

    Attributes:
        name: its name in ``engine=`` and ``CASRNN_ENGINE``.
        takes_input_product: whether :meth:`run` accepts an :class:`.inputs.InputProduct`.
        has_sentence_state: whether it has :meth:`sentence_state`; if not, the layer runs its steps
            with :meth:`word_ops`.
    """

    name: str
    takes_input_product = False
    has_sentence_state = False

    def available(self, device: str) -> str | None:
        """Whether it can run on that type of device at all; the reason says what to do about it."""
        return None

    def fallback(self, device: str) -> str:
        """The engine that runs what this one does not support."""
        return "reference"

    def supports(self, inputs: LayerInputs) -> str | None:
        """Whether it has :meth:`run` for these inputs."""
        return None

    def run(self, inputs: LayerInputs) -> LayerOutputs:
        """Run a layer over time; see :func:`fairseq_casrnn.recurrence.run`."""
        raise NotImplementedError

    def supports_routing(self, inputs: LayerInputs, cells: Tensor) -> str | None:
        """Whether it has :meth:`run_routed` for these inputs, and that is faster."""
        return "it computes all cells of a mixture"

    def run_routed(self, inputs: LayerInputs, cells: Tensor) -> LayerOutputs:
        """Run a mixture of which ``cells`` ``(T, B)`` names one cell for each input."""
        raise NotImplementedError

    def supports_decode(self, d: DecoderInputs) -> str | None:
        """Whether it has :meth:`decode` for this decoder."""
        return None

    def decode(self, d: DecoderInputs) -> tuple[Tensor, Tensor]:
        """Run the decoder's loop; see :func:`.attention.run_reference`."""
        raise NotImplementedError

    def decode_steps(
        self, d: DecoderInputs, source: Tensor | None, input_feed: bool
    ) -> DecoderSteps | None:
        """The decoder's loop step by step, without gradients; None if it cannot."""
        return None

    def supports_sentence_state(
        self, x: Tensor, lengths: Tensor | None, params: SLSTMParameters
    ) -> str | None:
        """Whether its :meth:`sentence_state`, or else :meth:`word_ops`, takes these."""
        return None

    def sentence_state(
        self, options: SLSTMOptions, x: Tensor, lengths: Tensor | None, params: SLSTMParameters
    ) -> tuple[Tensor, Tensor]:
        """Run all steps of a sentence-state LSTM; see :func:`.triton.sentence_state.run`."""
        raise NotImplementedError

    def word_ops(self, x: Tensor, lengths: Tensor | None) -> WordOps:
        """The elementwise part of a sentence-state LSTM's step."""
        from .sentence_state import TorchWordOps

        return TorchWordOps(x, lengths)

    def supports_products(self, first: Tensor, *others: Tensor | None) -> str | None:
        """Whether it has matrix products of its own for these tensors (:mod:`.products`)."""
        return "it has torch's matrix products"

    def supports_loss(self, weight: Tensor) -> str | None:
        """Whether it has :meth:`cross_entropy` for a vocabulary with this weight."""
        return "it has no loss without a table of logits"

    def cross_entropy(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, loss_spec: LossSpec
    ) -> tuple[Tensor, Tensor]:
        """See :func:`.cross_entropy.cross_entropy`; x is ``(N, E)``, the target ``(N,)``."""
        raise NotImplementedError

    def next_words(
        self, weight: Tensor, bias: Tensor | None, rows: int, steps: int
    ) -> NextWords | None:
        """Search for the best next words of a beam search, without gradients; None if it cannot."""
        return None

    def supports_best_sums(self, lprobs: Tensor, scores: Tensor) -> str | None:
        """Whether it picks beam search's candidates in one pass."""
        return "it has torch's topk"


ENGINES: dict[str, Engine] = {}
"""All engines by name, available or not; :mod:`.engines` registers them."""


def installed(device: str = "cpu") -> list[str]:
    """The names of the engines that can run on this type of device here."""
    return [name for name, engine in ENGINES.items() if engine.available(device) is None]


def default(device: str = "cpu") -> str:
    """The engine used on this type of device unless another one is requested."""
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
    """The engine to run; if it is not the requested one, a line in the log says so, once.

    Args:
        name: an engine; None or "auto" for the environment's or the default.
        device: type of the device it is to run on.
        supports: whether an engine supports what it is to run: None, or why not.

    Raises:
        UserError: no engine of that name.
    """
    engine = by_name(name, device)
    if supports is None or (reason := supports(engine)) is None:
        return engine
    other = ENGINES[engine.fallback(device)]
    while supports(other) is not None:
        other = ENGINES[other.fallback(device)]
    log_fallback(engine, other, reason)
    return other


def log_fallback(engine: Engine, other: Engine, reason: str) -> None:
    """Log once that ``other`` runs instead of ``engine``."""
    log_once(logging.INFO, "engine '%s' falls back to '%s': %s", engine.name, other.name, reason)


def by_name(name: str | None, device: str) -> Engine:
    """:func:`choose`, without asking whether the engine supports what it is to run."""
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
    # No error: a checkpoint may name an engine of the machine that it was trained on.
    other = default(device)
    log_once(
        logging.WARNING, "engine '%s' is not available, '%s' runs instead: %s", name, other, reason
    )
    return ENGINES[other]


def log_once(level: int, message: str, *arguments: object) -> None:
    """Log a line the first time; never while torch.compile or torch.export trace."""
    if (message, arguments) not in logged and not torch.compiler.is_compiling():
        logged.add((message, arguments))
        logger.log(level, message, *arguments)


def autocast(device: str) -> bool:
    """Whether torch.autocast is active for this type of device."""
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)
