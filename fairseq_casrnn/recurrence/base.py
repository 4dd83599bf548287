"""The base class of engines: what an engine may have, and its defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:  # plain layers do not need these modules
    from .decoder import DecoderInputs, DecoderSteps
    from .inputs import LayerInputs, LayerOutputs, LossSpec
    from .next_words import NextWords
    from .sentence_state import SLSTMOptions, SLSTMParameters, WordOps


class Engine:
    """Base class of engines; the defaults are those of an engine with PyTorch operations only.

    The methods ``available`` and ``supports…`` return None if the answer is yes, and otherwise the
    reason, as a clause for the log.

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
        """Whether it can run on this type of device at all; the reason also names a remedy."""
        return None

    def fallback(self, device: str) -> str:
        """Name of the engine that runs what this one does not support."""
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
        """Run the decoder's loop; see :func:`.decoder.run_reference`."""
        raise NotImplementedError

    def decode_steps(
        self, d: DecoderInputs, source: Tensor | None, input_feed: bool
    ) -> DecoderSteps | None:
        """The decoder's loop step by step, without gradients; None if it does not support that."""
        return None

    def supports_sentence_state(
        self, x: Tensor, lengths: Tensor | None, params: SLSTMParameters
    ) -> str | None:
        """Whether its :meth:`sentence_state`, or else :meth:`word_ops`, supports these inputs."""
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
        """The search for a beam's next words, without gradients; None if it does not have one."""
        return None
