"""The forward of a stack over padded sequences: layer by layer, in one or two directions."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from .. import recurrence
from ..recurrence.inputs import HardRouting, LayerOutputs
from .dropout import dropout, locked_dropout
from .parameters import StackParameters
from .sequences import reversal
from .state import LayerState


class StackForward(StackParameters):
    """Runs the layers of a stack over sequences ``(T, B, input_size)``.

    Attributes:
        engine: name of a recurrence engine, None for the default.
        dropout: probability, on h passed up between layers.
        locked_dropout: drop the same features of a sequence at all its steps.
        weight_dropout: probability of dropping an element of a recurrent weight for a whole
            forward.
        dropout_in_inference: keep the dropout between layers in ``eval()``.
    """

    engine: str | None = None
    dropout = 0.0
    locked_dropout = False
    weight_dropout = 0.0
    dropout_in_inference = False

    @property
    def drops(self) -> bool:
        """Whether dropout between layers is active: in training, or if ``dropout_in_inference``."""
        return self.training or self.dropout_in_inference

    def make_generation_fast_(
        self,
        name: str = "",
        retain_dropout: bool = False,
        retain_dropout_modules: Collection[str] | None = None,
        **unused: object,
    ) -> None:
        """Called by fairseq's generator; ``--retain-dropout`` keeps dropout active."""
        chosen = retain_dropout_modules is None or type(self).__name__ in retain_dropout_modules
        self.dropout_in_inference = bool(retain_dropout) and chosen

    def mixture_weights(
        self, k: int, suffix: str, x: Tensor, tokens: Tensor | None
    ) -> Tensor | HardRouting | None:
        """Weights ``(…, S)`` or HardRouting of layer k's cells for its input ``x``.

        None for a layer with a single cell.
        """
        return None

    def run_layers(
        self,
        x: Tensor,
        states: list[LayerState],
        lengths: Tensor | None,
        tokens: Tensor | None,
    ) -> tuple[Tensor, list[LayerState]]:
        """All layers in all directions.

        Args:
            x: ``(T, B, input_size)``.
            states: the initial state of each layer and direction, in ``nn.LSTM``'s order.
            lengths: ``(B,)``, or None where nothing is padding.
            tokens: ``(T, B)``, or None.

        Returns:
            The output ``(T, B, D*H)`` and the final states, in the same order.
        """
        run = (
            self._run_interleaved if self.bidirectional == "interleaved" else self._run_independent
        )
        return run(x, states, lengths, tokens)

    def _run_layer(
        self,
        k: int,
        suffix: str,
        x: Tensor,
        lower_c: Tensor | None,
        *,
        state: LayerState,
        last: Tensor | None,
        tokens: Tensor | None,
    ) -> LayerOutputs:
        """Layer k in one direction.

        Args:
            k, suffix: the layer and the direction.
            x: ``(T, B, I)`` in the direction's order.
            lower_c: ``(T, B, H)``, c of the layer below in the same direction, or None.
            state: the initial state.
            last: ``(B,)`` last step of each sequence, or None where nothing is padding.
            tokens: ``(T, B)`` in the direction's order, or None.
        """
        w_ih, w_hh, bias, params = self.layer_parameters(k, suffix)
        w_hh = dropout(w_hh, self.weight_dropout, self.training)
        gx = recurrence.InputProduct(x, w_ih, bias)  # all time steps at once
        cell = self.cells[k]
        return recurrence.run(
            self.engine,
            cell,
            gx,
            w_hh,
            *state,
            lower_c=lower_c if cell.lower_cell else None,
            mixture=self.mixture_weights(k, suffix, x, tokens),
            last=last,
            params=params,
        )

    def _directions(
        self, lengths: Tensor | None, steps: int
    ) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
        """Suffix and reordering function of each direction.

        The function reverses ``(T, B, …)`` for the backward direction, and undoes that as well.
        """
        if not self.bidirectional:
            return [("", identity)]
        return [("", identity), ("_reverse", reversal(lengths, steps))]

    def _input_dropout(self, x: Tensor, k: int) -> Tensor:
        """Dropout on the input ``x`` of layer k; none below the bottom layer."""
        drop = locked_dropout if self.locked_dropout else dropout
        return drop(x, self.dropout, self.drops) if k > 0 else x

    def _run_independent(
        self,
        x: Tensor,
        states: list[LayerState],
        lengths: Tensor | None,
        tokens: Tensor | None,
    ) -> tuple[Tensor, list[LayerState]]:
        """:meth:`run_layers`, one direction after the other."""
        last = None if lengths is None else lengths - 1
        outputs, finals = [], list(states)
        for d, (suffix, reorder) in enumerate(self._directions(lengths, x.size(0))):
            y, reordered_tokens = reorder(x), None if tokens is None else reorder(tokens)
            lower_c: Tensor | None = None
            for k in range(self.num_layers):
                slot = k * self.num_directions + d
                y, lower_c, h_n, c_n = self._run_layer(
                    k,
                    suffix,
                    self._input_dropout(y, k),
                    lower_c,
                    state=states[slot],
                    last=last,
                    tokens=reordered_tokens,
                )
                finals[slot] = (h_n, c_n)
            outputs.append(reorder(y))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1), finals

    def _run_interleaved(
        self,
        x: Tensor,
        states: list[LayerState],
        lengths: Tensor | None,
        tokens: Tensor | None,
    ) -> tuple[Tensor, list[LayerState]]:
        """:meth:`run_layers`, the directions' outputs concatenated after each layer."""
        last = None if lengths is None else lengths - 1
        directions = self._directions(lengths, x.size(0))
        reordered_tokens = [
            None if tokens is None else reorder(tokens) for _, reorder in directions
        ]
        finals: list[LayerState] = []
        for k in range(self.num_layers):
            x, outputs = self._input_dropout(x, k), []
            for d, (suffix, reorder) in enumerate(directions):
                y, _, h_n, c_n = self._run_layer(
                    k,
                    suffix,
                    reorder(x),
                    None,
                    state=states[len(finals)],
                    last=last,
                    tokens=reordered_tokens[d],
                )
                finals.append((h_n, c_n))
                outputs.append(reorder(y))
            x = torch.cat(outputs, dim=-1)
        return x, finals


def identity(x: Tensor) -> Tensor:
    """``x`` itself: the reordering of the forward direction."""
    return x
