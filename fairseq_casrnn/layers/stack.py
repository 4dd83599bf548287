"""The base class of the layers: a stack with the interface of ``torch.nn.LSTM``."""

from __future__ import annotations

import functools
import warnings
from typing import Any, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .. import recurrence
from ..cells import family
from ..cells.base import Cell, at_least_one
from ..errors import UserError
from ..recurrence.ragged import padding_mask
from .dropout import dropout, dropout_probability
from .sequences import (
    Lengths,
    check_input,
    check_lengths,
    from_time_first,
    run_packed,
    to_time_first,
    without_view,
)
from .stack_forward import StackForward
from .state import LayerState, State, check_state, h_and_c, map_state, split_state


class RecurrentStack(StackForward):
    """L layers of one family of cells, in one or two directions.

    With ``bidirectional=True`` there are two independent stacks, and only the outputs of their top
    layers are concatenated. ``bidirectional="interleaved"`` concatenates after every layer, as
    ``torch.nn.LSTM`` does; it is for cells that do not read the cell below.

    Args:
        name: key of :data:`fairseq_casrnn.cells.FAMILIES`.
        input_size, hidden_size: features of the input, and of every layer's state.
        num_layers: L, at least 1.
        bidirectional: False, True or "interleaved".
        dropout: probability, on h between layers; not on c, nor between time steps.
        options: the family's options dataclass; None for its defaults.
        engine: name of a recurrence engine, None for the default.
        bias, batch_first, device, dtype: see :class:`.parameters.TorchOptions`.

    Two attributes add regularisation in training. With ``locked_dropout``, the dropout between
    layers drops the same features of a sequence at all steps (Gal & Ghahramani 2016).
    ``weight_dropout`` is the probability of dropping an element of a recurrent weight
    ``weight_hh`` for a whole forward (Merity et al. 2018).

    Parameters, for layer k and suffix "" or "_reverse": ``weight_ih_l{k}``, ``weight_hh_l{k}``,
    ``bias_l{k}`` and the cell's elementwise ones.

    Raises:
        UserError: invalid sizes or options, or an unknown engine.

    Warns:
        UserWarning: dropout with a single layer, where it has no effect.
    """

    def __init__(
        self,
        name: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool | str = False,
        dropout: float = 0.0,
        options: Any = None,
        engine: str | None = None,
        *,
        bias: bool = True,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        if bidirectional not in (False, True, "interleaved"):
            raise UserError(f"bidirectional is {bidirectional!r}; use False, True or 'interleaved'")
        options = family(name).options() if options is None else options
        num_layers = at_least_one("num_layers", num_layers)
        self.name, self.options = name, options  # first: reset_parameters() may read them
        cells = make_cells(name, options, num_layers, interleaved=bidirectional == "interleaved")
        mixes = type(self).mixture_weights is not RecurrentStack.mixture_weights
        if not mixes and any(cell.num_cells for cell in cells):
            raise UserError(
                f"{name} mixes several cells, but a {type(self).__name__} computes no weights of "
                "a mixture; use SecondOrderLSTM, or define mixture_weights in a subclass"
            )
        super().__init__(
            cells,
            input_size,
            hidden_size,
            bidirectional=bidirectional if bidirectional == "interleaved" else bool(bidirectional),
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.dropout, self.engine = dropout_probability(dropout), engine
        self.batch_first = bool(batch_first)
        if engine is not None:
            recurrence.choose(engine)
        if self.dropout and num_layers == 1:
            warnings.warn(
                f"dropout is {dropout}, but it acts between layers and this stack has only one",
                stacklevel=3,
            )

    def flatten_parameters(self) -> None:
        """Does nothing: for compatibility with ``nn.LSTM``."""

    @overload
    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        lengths: Lengths = None,
        tokens: Tensor | None = None,
    ) -> tuple[Tensor, State]: ...
    @overload
    def forward(
        self,
        x: PackedSequence,
        state: State | None = None,
        lengths: None = None,
        tokens: Tensor | None = None,
    ) -> tuple[PackedSequence, State]: ...
    def forward(
        self,
        x: Tensor | PackedSequence,
        state: State | None = None,
        lengths: Lengths = None,
        tokens: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, State]:
        """Run the stack over a batch.

        Args:
            x: ``(T, B, input_size)``, ``(B, T, input_size)`` with ``batch_first``, a
                PackedSequence, or a single sequence ``(T, input_size)``.
            state: ``(h_0, c_0)``, each ``(L*D, B, H)``, h_0 alone without c, or None for zeros.
            lengths: ``(B,)`` in any order, or None when nothing is padding or x is packed.
            tokens: ``(T, B)``, ``(B, T)`` with ``batch_first``; only routing by token reads them.

        With a single sequence, state, tokens and results have no dimension B.

        Returns:
            ``output, (h_n, c_n)``, or ``output, h_n`` without c. The output is ``(T, B, D*H)``,
            zero at padding, or a PackedSequence if x is one; h_n and c_n are ``(L*D, B, H)``, at
            each sequence's last step.

        Raises:
            UserError: shapes that do not fit.
        """
        size, dtype = self.input_size, self.weight_ih_l0.dtype
        if isinstance(x, PackedSequence):
            if self.batch_first and tokens is not None:
                tokens = tokens.transpose(0, 1)
            forward = functools.partial(self._forward, state=state, tokens=tokens)
            return run_packed(forward, x, lengths, size, dtype)
        check_input(x, size, dtype, self.batch_first)
        single = x.dim() == 2
        if single:
            if state is not None:
                self._check_state(state)
                state = map_state(lambda part: part.unsqueeze(1), state)
            tokens = None if tokens is None else tokens.unsqueeze(1)
        elif self.batch_first and tokens is not None:
            tokens = tokens.transpose(0, 1)
        y = to_time_first(x, self.batch_first)
        output, final = self._forward(y, lengths, state, tokens)
        if single:
            final = map_state(lambda part: without_view(part.squeeze(1)), final)
        return from_time_first(output, x, self.batch_first), final

    def _forward(
        self, x: Tensor, given: Lengths, state: State | None, tokens: Tensor | None
    ) -> tuple[Tensor, State]:
        """:meth:`forward` for x ``(T, B, input_size)``."""
        steps, batch, _ = x.shape
        lengths = check_lengths(given, steps, batch, x.device)
        mask = None
        if lengths is not None:
            mask = padding_mask(lengths, steps).unsqueeze(-1)
            # NaN at padding must not reach the weights' gradients.
            x = x.masked_fill(mask, 0.0)
        output, finals = self.run_layers(x, self._initial_states(state, x), lengths, tokens)
        if mask is not None:
            output = output.masked_fill(mask, 0.0)
        h_n = torch.stack([h for h, _ in finals])
        if not self.has_cell:
            return output, h_n
        return output, (h_n, torch.stack([c for _, c in finals if c is not None]))

    def step(
        self, x: Tensor, state: State | None, tokens: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """One time step of a one-directional stack, for decoders.

        ``weight_dropout`` and ``locked_dropout`` have no effect here: masks are drawn per step.

        Args:
            x: ``(B, input_size)``.
            state: as in :meth:`forward`, each part ``(L, B, H)``.
            tokens: ``(B,)``; only routing by token reads them.

        Returns:
            The top layer's h ``(B, H)`` and the new state.

        Raises:
            UserError: a bidirectional stack; shapes that do not fit.
        """
        if self.bidirectional:
            raise UserError("a bidirectional stack has no steps: it reads whole sequences")
        if x.dim() != 2 or x.size(1) != self.input_size:
            raise UserError(
                f"input has shape {tuple(x.shape)}; a step expects (batch, {self.input_size})"
            )
        check_input(x.unsqueeze(0), self.input_size, self.weight_ih_l0.dtype)
        if state is None:
            state = self.zero_state(x.size(0))
        self._check_state(state, x.size(0))
        h_0, c_0 = h_and_c(state)
        hs, cs = [], []
        lower_c: Tensor | None = None
        for k, cell in enumerate(self.cells):
            if k > 0:
                x = dropout(x, self.dropout, self.drops)
            w_ih, w_hh, bias, params = self.layer_parameters(k)
            x, lower_c = recurrence.one_step(
                cell,
                x,
                w_ih,
                bias,
                w_hh,
                h_0[k],
                None if c_0 is None else c_0[k],
                lower_c=lower_c if cell.lower_cell else None,
                mixture=self.mixture_weights(k, "", x, tokens),
                params=params,
            )
            hs.append(x)
            if lower_c is not None:
                cs.append(lower_c)
        h = torch.stack(hs)
        return x, ((h, torch.stack(cs)) if self.has_cell else h)

    def zero_state(self, batch: int) -> State:
        """The all-zero state for ``batch`` sequences, in the form :meth:`forward` takes."""
        h = self.weight_hh_l0.new_zeros(
            self.num_layers * self.num_directions, batch, self.hidden_size
        )
        return (h, h.clone()) if self.has_cell else h

    def _check_state(self, state: State, *batch: int) -> None:
        shape = (self.num_layers * self.num_directions, *batch, self.hidden_size)
        dtype, layer = self.weight_hh_l0.dtype, type(self).__name__
        check_state(state, shape, dtype, has_cell=self.has_cell, layer=layer)

    def _initial_states(self, state: State | None, x: Tensor) -> list[LayerState]:
        """The initial (h, c) of each layer and direction; zeros if ``state`` is None."""
        if state is None:
            zero = x.new_zeros(x.size(1), self.hidden_size)
            count = self.num_layers * self.num_directions
            return [(zero, zero if self.has_cell else None)] * count
        self._check_state(state, x.size(1))
        return split_state(state)

    def extra_repr(self) -> str:
        """The sizes and non-default options, for ``repr``."""
        parts = [f"{self.input_size}, {self.hidden_size}", f"num_layers={self.num_layers}"]
        if self.bidirectional:
            parts.append(f"bidirectional={self.bidirectional!r}")
        if self.dropout:
            parts.append(f"dropout={self.dropout}")
        if not self.bias:
            parts.append("bias=False")
        if self.batch_first:
            parts.append("batch_first=True")
        return ", ".join(parts)


def make_cells(name: str, options: Any, num_layers: int, *, interleaved: bool) -> list[Cell]:
    """The cells of a stack of the family ``name``, from the bottom.

    Raises:
        UserError: cells that cannot stand together, or not where the family or ``interleaved``
            directions put them.
    """
    make_cell = family(name).make_cell
    cells: list[Cell] = [make_cell(k, options) for k in range(num_layers)]
    if len({cell.has_cell for cell in cells}) > 1:
        raise UserError(
            f"some layers of {name} have a cell state and others have none; give its make_cell "
            "cells with the same has_cell"
        )
    if cells[0].lower_cell:
        raise UserError(
            f"layer 0 of {name} is a {type(cells[0]).__name__}, which reads the cell of "
            "the layer below; give its make_cell another cell for the bottom"
        )
    if interleaved and any(cell.lower_cell for cell in cells):
        raise UserError(
            f"{name} reads the cell of the layer below and cannot be interleaved; "
            "use bidirectional=True"
        )
    return cells
