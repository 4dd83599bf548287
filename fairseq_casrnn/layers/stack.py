"""The base class of the layers: a stack with the interface of ``torch.nn.LSTM``."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeAlias, TypedDict, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .. import recurrence
from ..cells import family
from ..cells.base import at_least_one
from ..errors import UserError
from ..recurrence.inputs import HardRouting, LayerOutputs, accumulation_dtype
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


class TorchOptions(TypedDict, total=False):
    """Keywords that every recurrent layer takes as ``torch.nn.LSTM`` does.

    Attributes:
        bias: False for gates without biases; the parameters ``bias_l{k}`` are None then.
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


State: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""``(h, c)``, or h alone for a cell without c; each ``(L*D, B, H)``."""

LayerState: TypeAlias = tuple[Tensor, Tensor | None]
"""h and c of one layer in one direction, ``(B, H)`` each; c is None for a cell without c."""


class RecurrentStack(nn.Module):
    """L layers of one family of cells, in one or two directions.

    Two directions are two independent stacks; only the outputs of their top layers are
    concatenated. ``bidirectional="interleaved"`` concatenates after every layer, as
    ``torch.nn.LSTM`` does; it is for cells that do not read the cell below.

    Args:
        name: key of :data:`fairseq_casrnn.cells.FAMILIES`.
        input_size, hidden_size: features of the input, and of every layer's state.
        num_layers: L, at least 1.
        bidirectional: False, True or "interleaved".
        dropout: probability, on h passed up between layers; not on c, nor between time steps.
        options: the family's options dataclass; None for its defaults.
        engine: name of a recurrence engine, None for the default.
        bias, batch_first, device, dtype: see :class:`TorchOptions`.

    Two attributes add regularization in training: with ``locked_dropout`` the dropout between
    layers drops the same features of a sequence at all steps (Gal & Ghahramani 2016);
    ``weight_dropout`` is the probability of dropping an element of a recurrent weight
    ``weight_hh`` in a whole forward (Merity et al. 2018).

    Parameters, for layer k and suffix "" or "_reverse": ``weight_ih_l{k}``, ``weight_hh_l{k}``,
    ``bias_l{k}`` and the cell's elementwise ones.

    Raises:
        UserError: invalid sizes or options, or an unknown engine.

    Warns:
        UserWarning: dropout with a single layer, where it has no effect.
    """

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
        self.name = name
        self.input_size = at_least_one("input_size", input_size)
        self.hidden_size = at_least_one("hidden_size", hidden_size)
        self.num_layers = at_least_one("num_layers", num_layers)
        self.bidirectional = (
            bidirectional if bidirectional == "interleaved" else bool(bidirectional)
        )
        self.dropout, self.engine = dropout_probability(dropout), engine
        if self.dropout and self.num_layers == 1:
            warnings.warn(
                f"dropout is {dropout}, but acts between layers, and this stack has one",
                stacklevel=3,
            )
        self.locked_dropout, self.weight_dropout = False, 0.0
        self.bias, self.batch_first = bool(bias), bool(batch_first)
        if engine is not None:
            recurrence.choose(engine)
        kind = family(name)
        self.options = kind.options() if options is None else options
        self.cells = [kind.make_cell(k, self.options) for k in range(self.num_layers)]
        if self.cells[0].lower_cell:
            raise UserError(
                f"layer 0 of {name} is a {type(self.cells[0]).__name__}, which reads the cell of "
                "the layer below; give its make_cell another cell for the bottom"
            )
        if bidirectional == "interleaved" and any(cell.lower_cell for cell in self.cells):
            raise UserError(
                f"{name} reads the cell of the layer below and cannot be interleaved; "
                "use bidirectional=True"
            )
        self.suffixes = ("", "_reverse") if bidirectional else ("",)
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

    def make_generation_fast_(
        self,
        name: str = "",
        retain_dropout: bool = False,
        retain_dropout_modules: Collection[str] | None = None,
        **unused: object,
    ) -> None:
        """Called by fairseq's generator; keeps dropout active with its ``--retain-dropout``."""
        chosen = retain_dropout_modules is None or type(self).__name__ in retain_dropout_modules
        self.dropout_in_inference = bool(retain_dropout) and chosen

    def flatten_parameters(self) -> None:
        """Does nothing; for code written for ``nn.LSTM``."""

    def layer_input_size(self, k: int) -> int:
        """Features that layer k reads."""
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
        """Weights and peepholes uniform in ±bound; biases 0, of forget-like gates 1; λ at 0.5.

        ``bound`` is 1/√H unless given, as in ``nn.LSTM``.
        """
        bound = 1 / math.sqrt(self.hidden_size) if bound is None else bound
        with torch.no_grad():
            for key, parameter in self.named_parameters():
                if key.startswith(("bias", "lam_logit")):
                    parameter.zero_()
                else:
                    parameter.uniform_(-bound, bound)
            for k, cell in enumerate(self.cells if self.bias else ()):
                for suffix in self.suffixes:
                    blocks = getattr(self, f"bias_l{k}{suffix}").view(cell.ih_blocks, -1)
                    blocks[list(cell.bias_one_gates)] = 1.0

    def layer_parameters(self, k: int, suffix: str = "") -> LayerParameters:
        """The parameters of layer k in one direction. Without biases they are zeros."""

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
        """The weights ``(…, S)``, or a HardRouting, of layer k's mixture for its input ``x``.

        None for a cell that is not a mixture.
        """
        return None

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
            tokens: ``(T, B)``, ``(B, T)`` with ``batch_first``; read only by routing by token.

        For a single sequence, state, tokens and results have no dimension B either.

        Returns:
            ``output, (h_n, c_n)``, or ``output, h_n`` without c. The output is ``(T, B, D*H)``,
            zero at padding, or a PackedSequence if x is one; h_n and c_n are ``(L*D, B, H)``, at
            each sequence's last step.

        Raises:
            UserError: shapes that do not fit.
        """
        size, dtype = self.input_size, self.weight_ih_l0.dtype
        if isinstance(x, PackedSequence):
            forward = functools.partial(self._forward, state=state, tokens=tokens)
            return run_packed(forward, x, lengths, size, dtype)
        check_input(x, size, dtype, self.batch_first)
        single = x.dim() == 2
        if single:
            state = None if state is None else map_state(lambda part: part.unsqueeze(1), state)
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
        states = self._split_state(state, x)
        run = self._interleaved if self.bidirectional == "interleaved" else self._independent
        output, finals = run(x, states, lengths, tokens)
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

        ``weight_dropout`` and ``locked_dropout`` have no effect here: no mask outlives a step.

        Args:
            x: ``(B, input_size)``.
            state: as in :meth:`forward`, each part ``(L, B, H)``.
            tokens: ``(B,)``, read only by routing by token.

        Returns:
            The top layer's h ``(B, H)`` and the new state.

        Raises:
            UserError: a bidirectional stack; shapes that do not fit.
        """
        if self.bidirectional:
            raise UserError("a bidirectional stack has no steps: it reads whole sequences")
        check_input(x.unsqueeze(0), self.input_size, self.weight_ih_l0.dtype)
        if state is None:
            state = self.zero_state(x.size(0))
        self._check_state(state, x.size(0))
        h_0, c_0 = (state, None) if isinstance(state, Tensor) else state
        hs, cs = [], []
        lower_c: Tensor | None = None
        for k, cell in enumerate(self.cells):
            if k > 0:
                x = dropout(x, self.dropout, self.drops)
            w_ih, w_hh, bias, params = self.layer_parameters(k)
            x, lower_c = recurrence.one_step(
                *(cell, x, w_ih, bias, w_hh, h_0[k]),
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

    def _check_state(self, state: State, batch: int) -> None:
        if self.has_cell != isinstance(state, (tuple, list)) or (self.has_cell and len(state) != 2):
            form = "a pair (h_0, c_0)" if self.has_cell else "one tensor, h_0"
            raise UserError(f"the state of a {type(self).__name__} is {form}")
        expected = (self.num_layers * self.num_directions, batch, self.hidden_size)
        dtype: torch.dtype = self.weight_hh_l0.dtype
        allowed = {dtype}
        for part in state if self.has_cell else (state,):
            if not torch.is_tensor(part):
                raise UserError(f"a part of the state is {part!r}; expected a tensor")
            if tuple(part.shape) != expected:
                raise UserError(f"the state has shape {tuple(part.shape)}; expected {expected}")
            if part.dtype not in allowed and not torch.is_autocast_enabled(part.device.type):
                raise UserError(
                    f"the state is of {part.dtype} and the layer of {dtype}; convert one of them, "
                    f"as with state.to({dtype})"
                )
            # For half precision, step() returns c in float32.
            allowed = {dtype, accumulation_dtype(dtype)}

    def _split_state(self, state: State | None, x: Tensor) -> list[LayerState]:
        """The initial (h, c) of each layer and direction, in ``nn.LSTM`` order."""
        if state is None:
            zero = x.new_zeros(x.size(1), self.hidden_size)
            count = self.num_layers * self.num_directions
            return [(zero, zero if self.has_cell else None)] * count
        self._check_state(state, x.size(1))
        if isinstance(state, Tensor):
            return [(h, None) for h in state]
        return list(zip(*state, strict=True))

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
        """Layer k in one direction; ``x`` and ``tokens`` are reversed for the second one."""
        w_ih, w_hh, bias, params = self.layer_parameters(k, suffix)
        w_hh = dropout(w_hh, self.weight_dropout, self.training)
        gx = recurrence.InputProduct(x, w_ih, bias)  # for the whole sequence at once
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
        """The suffixes, and what brings ``(T, B, …)`` into each direction's order, and back."""
        if not self.bidirectional:
            return [("", identity)]
        return [("", identity), ("_reverse", reversal(lengths, steps))]

    def _between(self, x: Tensor, k: int) -> Tensor:
        """``x`` after the dropout below layer k."""
        drop = locked_dropout if self.locked_dropout else dropout
        return drop(x, self.dropout, self.drops) if k > 0 else x

    def _independent(
        self,
        x: Tensor,
        states: list[LayerState],
        lengths: Tensor | None,
        tokens: Tensor | None,
    ) -> tuple[Tensor, list[LayerState]]:
        """All layers, the directions one after the other: the output and the final states."""
        last = None if lengths is None else lengths - 1
        outputs, finals = [], list(states)
        for d, (suffix, order) in enumerate(self._directions(lengths, x.size(0))):
            y, ids = order(x), None if tokens is None else order(tokens)
            lower_c: Tensor | None = None
            for k in range(self.num_layers):
                slot = k * self.num_directions + d
                y, lower_c, h_n, c_n = self._run_layer(
                    *(k, suffix, self._between(y, k), lower_c),
                    state=states[slot],
                    last=last,
                    tokens=ids,
                )
                finals[slot] = (h_n, c_n)
            outputs.append(order(y))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1), finals

    def _interleaved(
        self,
        x: Tensor,
        states: list[LayerState],
        lengths: Tensor | None,
        tokens: Tensor | None,
    ) -> tuple[Tensor, list[LayerState]]:
        """The same, with both directions' outputs concatenated after every layer."""
        last = None if lengths is None else lengths - 1
        directions = self._directions(lengths, x.size(0))
        ids = [None if tokens is None else order(tokens) for _, order in directions]
        finals: list[LayerState] = []
        for k in range(self.num_layers):
            x, outputs = self._between(x, k), []
            for d, (suffix, order) in enumerate(directions):
                y, _, h_n, c_n = self._run_layer(
                    *(k, suffix, order(x), None),
                    state=states[len(finals)],
                    last=last,
                    tokens=ids[d],
                )
                finals.append((h_n, c_n))
                outputs.append(order(y))
            x = torch.cat(outputs, dim=-1)
        return x, finals

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
    """``x``: the order of the forward direction."""
    return x


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """``function`` of each tensor of a state, which need not be checked yet."""
    if isinstance(state, (tuple, list)):
        return cast(State, tuple(map(function, state)))
    return function(state)
