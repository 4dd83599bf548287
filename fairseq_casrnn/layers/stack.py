"""The base class of the layers: a stack with the interface of ``torch.nn.LSTM``."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypedDict, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .. import recurrence
from ..cells import family, make_cells
from ..cells.base import at_least_one
from ..errors import UserError
from ..recurrence.inputs import LayerOutputs
from ..recurrence.mixture import HardRouting
from ..recurrence.ragged import padding_mask
from .dropout import dropout, dropout_probability, locked_dropout
from .sequences import (
    Lengths,
    check_input,
    check_lengths,
    from_time_first,
    reversal,
    run_packed,
    to_time_first,
    without_view,
)
from .state import LayerState, State, check_state, h_and_c, map_state, split_state


class TorchOptions(TypedDict, total=False):
    """Keywords that every recurrent layer shares with ``torch.nn.LSTM``.

    Attributes:
        bias: False for gates without biases; the parameters ``bias_l{k}`` are then None.
        batch_first: inputs, tokens and outputs are ``(B, T, …)``; states stay ``(L*D, B, H)``.
        device, dtype: of the parameters.
    """

    bias: bool
    batch_first: bool
    device: torch.device | str | None
    dtype: torch.dtype | None


class LayerParameters(NamedTuple):
    """The parameters of one layer in one direction; ``params`` are the cell's elementwise ones."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor
    params: tuple[Tensor, ...]


class Direction(NamedTuple):
    """The data that all layers of one direction share during a forward.

    Attributes:
        suffix: of the direction's parameters, "" or "_reverse".
        reorder: reverses ``(T, B, …)`` for the backward direction; it is its own inverse.
        last: ``(B,)`` last step of each sequence, or None if nothing is padding.
        tokens: ``(T, B)`` in the direction's order, or None.
    """

    suffix: str
    reorder: Callable[[Tensor], Tensor]
    last: Tensor | None
    tokens: Tensor | None


class RecurrentStack(nn.Module):
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
        bias, batch_first, device, dtype: see :class:`TorchOptions`.

    Attributes:
        locked_dropout: if True, the dropout between layers drops the same features of a sequence
            at all steps (Gal & Ghahramani 2016).
        weight_dropout: probability of dropping an element of a recurrent weight ``weight_hh`` for a
            whole forward, in training (Merity et al. 2018).
        dropout_in_inference: if True, dropout between layers is active in ``eval()``, too.

    Parameters, for layer k and suffix "" or "_reverse": ``weight_ih_l{k}``, ``weight_hh_l{k}``,
    ``bias_l{k}`` and the cell's elementwise ones.

    Raises:
        UserError: invalid sizes or options, or an unknown engine.

    Warns:
        UserWarning: dropout with a single layer, where it has no effect.
    """

    locked_dropout = False
    weight_dropout = 0.0
    dropout_in_inference = False
    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter

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
        super().__init__()
        if bidirectional not in (False, True, "interleaved"):
            raise UserError(f"bidirectional is {bidirectional!r}; use False, True or 'interleaved'")
        interleaved = bidirectional == "interleaved"
        self.bidirectional = bidirectional if interleaved else bool(bidirectional)
        self.suffixes = ("", "_reverse") if bidirectional else ("",)
        self.name, self.options = name, family(name).options() if options is None else options
        self.num_layers = at_least_one("num_layers", num_layers)
        self.cells = make_cells(name, self.options, self.num_layers, interleaved=interleaved)
        mixes = type(self).mixture_weights is not RecurrentStack.mixture_weights
        if not mixes and any(cell.num_cells for cell in self.cells):
            raise UserError(
                f"{name} mixes several cells, but a {type(self).__name__} computes no weights of "
                "a mixture; use SecondOrderLSTM, or define mixture_weights in a subclass"
            )
        self.input_size = at_least_one("input_size", input_size)
        self.hidden_size = at_least_one("hidden_size", hidden_size)
        self.bias, self.batch_first = bool(bias), bool(batch_first)
        self.dropout, self.engine = dropout_probability(dropout), engine
        if engine is not None:
            recurrence.check_name(engine)
        if self.dropout and self.num_layers == 1:
            warnings.warn(
                f"dropout is {dropout}, but it acts between layers and this stack has only one",
                stacklevel=3,
            )
        for k in range(self.num_layers):
            for suffix in self.suffixes:
                for key, shape in self.parameter_shapes(k).items():
                    parameter = None
                    if self.bias or not key.startswith("bias"):
                        parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                    self.register_parameter(key + suffix, parameter)
        self.reset_parameters()

    @property
    def num_directions(self) -> int:
        """D: 2 for a bidirectional stack, else 1."""
        return len(self.suffixes)

    @property
    def output_size(self) -> int:
        """Features of the output, D*H."""
        return self.num_directions * self.hidden_size

    @property
    def has_cell(self) -> bool:
        """Whether the state is (h, c); False for a GRU, whose state is h alone."""
        return self.cells[0].has_cell

    @property
    def drops(self) -> bool:
        """Whether dropout between layers is active: in training, or if ``dropout_in_inference``."""
        return self.training or self.dropout_in_inference

    def layer_input_size(self, k: int) -> int:
        """Features of layer k's input."""
        if k == 0:
            return self.input_size
        return self.output_size if self.bidirectional == "interleaved" else self.hidden_size

    def parameter_shapes(self, k: int) -> dict[str, tuple[int, ...]]:
        """Names (without the direction's suffix) and shapes of layer k's parameters."""
        cell, size = self.cells[k], self.hidden_size
        shapes = {
            f"weight_ih_l{k}": (cell.ih_blocks * size, self.layer_input_size(k)),
            f"weight_hh_l{k}": (cell.hh_blocks * size, size),
            f"bias_l{k}": (cell.ih_blocks * size,),
        }
        for key, rows in cell.params:
            shapes[f"{key}_l{k}"] = (size,) if rows is None else (rows, size)
        if cell.num_cells:
            shapes[f"attention_l{k}"] = (cell.num_cells, self.layer_input_size(k))
        return shapes

    def reset_parameters(self, bound: float | None = None) -> None:
        """Weights and peepholes uniform in ±bound; biases 0, of forget-like gates 1.

        The default of ``bound`` is 1/√H, as in ``nn.LSTM``.
        """
        bound = 1 / math.sqrt(self.hidden_size) if bound is None else bound
        zero = {
            f"{name}_l{k}{suffix}"
            for k, cell in enumerate(self.cells)
            for name in cell.zero_params
            for suffix in self.suffixes
        }
        with torch.no_grad():
            for key, parameter in self.named_parameters():
                if key.startswith("bias") or key in zero:
                    parameter.zero_()
                else:
                    parameter.uniform_(-bound, bound)
            for k, cell in enumerate(self.cells if self.bias else ()):
                for suffix in self.suffixes:
                    blocks = getattr(self, f"bias_l{k}{suffix}").view(cell.ih_blocks, -1)
                    blocks[list(cell.bias_one_gates)] = 1.0

    def layer_parameters(self, k: int, suffix: str = "") -> LayerParameters:
        """The parameters of layer k in one direction; zeros for biases that the stack lacks."""

        def get(key: str) -> Tensor:
            parameter: Tensor | None = getattr(self, f"{key}_l{k}{suffix}")
            if parameter is None:
                return self.weight_hh_l0.new_zeros(self.parameter_shapes(k)[f"{key}_l{k}"])
            return parameter

        params = tuple(get(key) for key, _ in self.cells[k].params)
        return LayerParameters(get("weight_ih"), get("weight_hh"), get("bias"), params)

    def mixture_weights(
        self, k: int, suffix: str, x: Tensor, tokens: Tensor | None
    ) -> Tensor | HardRouting | None:
        """Weights ``(…, S)`` or HardRouting of layer k's cells for its input ``x``.

        None for a layer with a single cell.
        """
        return None

    def flatten_parameters(self) -> None:
        """Does nothing: for compatibility with ``nn.LSTM``."""

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
        self, x: Tensor, unchecked: Lengths, state: State | None, tokens: Tensor | None
    ) -> tuple[Tensor, State]:
        """:meth:`forward` for x ``(T, B, input_size)`` and tokens ``(T, B)``."""
        steps, batch, _ = x.shape
        lengths = check_lengths(unchecked, steps, batch, x.device)
        mask = None
        if lengths is not None:
            mask = padding_mask(lengths, steps).unsqueeze(-1)
            # NaN at padding must not reach the weights' gradients.
            x = x.masked_fill(mask, 0.0)
        run = self._run_interleaved if self.bidirectional == "interleaved" else self._run_stacks
        directions = self._directions(lengths, steps, tokens)
        output, finals = run(x, self._initial_states(state, x), directions)
        if mask is not None:
            output = output.masked_fill(mask, 0.0)
        h_n = torch.stack([h for h, _ in finals])
        if not self.has_cell:
            return output, h_n
        return output, (h_n, torch.stack([c for _, c in finals if c is not None]))

    def _directions(
        self, lengths: Tensor | None, steps: int, tokens: Tensor | None
    ) -> list[Direction]:
        """Each direction of a forward, given ``lengths`` (B,) and ``tokens`` (T, B), or None."""
        last = None if lengths is None else lengths - 1
        forward = Direction("", identity, last, tokens)
        if not self.bidirectional:
            return [forward]
        reverse = reversal(lengths, steps)
        reversed_tokens = None if tokens is None else reverse(tokens)
        return [forward, Direction("_reverse", reverse, last, reversed_tokens)]

    def _run_stacks(
        self, x: Tensor, states: list[LayerState], directions: list[Direction]
    ) -> tuple[Tensor, list[LayerState]]:
        """All layers, one direction after the other.

        Args:
            x: ``(T, B, input_size)``.
            states: the initial state of each layer and direction, in ``nn.LSTM``'s order.
            directions: see :meth:`_directions`.

        Returns:
            The output ``(T, B, D*H)`` and the final states, in the same order.
        """
        outputs, finals = [], list(states)
        for d, direction in enumerate(directions):
            y, lower_c = direction.reorder(x), None
            for k in range(self.num_layers):
                slot = k * self.num_directions + d
                y = self._input_dropout(y, k)
                y, lower_c, h_n, c_n = self._run_layer(k, direction, y, lower_c, states[slot])
                finals[slot] = (h_n, c_n)
            outputs.append(direction.reorder(y))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1), finals

    def _run_interleaved(
        self, x: Tensor, states: list[LayerState], directions: list[Direction]
    ) -> tuple[Tensor, list[LayerState]]:
        """As :meth:`_run_stacks`, but with the directions concatenated after each layer."""
        finals: list[LayerState] = []
        for k in range(self.num_layers):
            x, outputs = self._input_dropout(x, k), []
            for direction in directions:
                y = direction.reorder(x)
                y, _, h_n, c_n = self._run_layer(k, direction, y, None, states[len(finals)])
                finals.append((h_n, c_n))
                outputs.append(direction.reorder(y))
            x = torch.cat(outputs, dim=-1)
        return x, finals

    def _input_dropout(self, x: Tensor, k: int) -> Tensor:
        """Dropout on the input ``x`` of layer k; none below the bottom layer."""
        drop = locked_dropout if self.locked_dropout else dropout
        return drop(x, self.dropout, self.drops) if k > 0 else x

    def _run_layer(
        self, k: int, direction: Direction, x: Tensor, lower_c: Tensor | None, state: LayerState
    ) -> LayerOutputs:
        """Layer k in one direction.

        Args:
            k, direction: the layer and the direction.
            x: ``(T, B, I)``, the layer's input in the direction's order.
            lower_c: ``(T, B, H)``, c of the layer below in the same direction, or None.
            state: the initial state.
        """
        suffix, _, last, tokens = direction
        w_ih, w_hh, bias, params = self.layer_parameters(k, suffix)
        cell = self.cells[k]
        return recurrence.run(
            self.engine,
            cell,
            recurrence.InputProduct(x, w_ih, bias),  # of all time steps at once
            dropout(w_hh, self.weight_dropout, self.training),
            *state,
            lower_c=lower_c if cell.lower_cell else None,
            mixture=self.mixture_weights(k, suffix, x, tokens),
            last=last,
            params=params,
        )

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


def identity(x: Tensor) -> Tensor:
    """``x`` itself: the reordering of the forward direction."""
    return x
