"""A stack of recurrent layers with the habits of ``torch.nn.LSTM``: the base of all layers."""

from __future__ import annotations

import functools
import math
import warnings
from typing import TypedDict

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .. import recurrence
from ..cells import family
from ..cells.base import at_least_one
from ..errors import UserError
from ..recurrence.inputs import accumulation_dtype
from ..recurrence.ragged import padding_mask
from .dropout import dropout, dropout_probability, locked_dropout
from .sequences import (
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


class RecurrentStack(nn.Module):
    """L layers of one family of cells, in one or two directions.

    Two directions are two independent stacks that meet only at the top, where their outputs are
    concatenated; ``bidirectional="interleaved"`` is ``torch.nn.LSTM``'s way instead (concatenation
    after every layer), for cells that do not read the cell below.

    Args:
        name: key of :data:`fairseq_casrnn.cells.FAMILIES`.
        input_size, hidden_size: features of the input, of every layer's state.
        num_layers: L, at least 1.
        bidirectional: False, True or "interleaved".
        dropout: probability on the hidden state passed up between layers, not on a cell or in time.
        options: the family's options dataclass; None for its defaults.
        engine: name of a recurrence engine, None for the default.
        bias, batch_first, device, dtype: see :class:`TorchOptions`.

    Two attributes regularise further, in training: with ``locked_dropout`` the dropout between
    layers drops the same features of a sequence at all its steps (Gal & Ghahramani 2016);
    ``weight_dropout`` is the probability to drop an element of a recurrent weight ``weight_hh``
    for a whole pass over a batch (Merity et al. 2018).

    Parameters, for layer k and suffix "" or "_reverse": ``weight_ih_l{k}``, ``weight_hh_l{k}``,
    ``bias_l{k}`` and the cell's elementwise ones.

    Raises:
        UserError: sizes, options or an engine that cannot be.

    Warns:
        UserWarning: dropout with a single layer, which has no layer to pass anything up to.
    """

    dropout_in_inference = False

    def __init__(
        self,
        name: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool | str = False,
        dropout: float = 0.0,
        options=None,
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
        """Whether dropout between layers is active: in training, and in inference if asked for."""
        return self.training or self.dropout_in_inference

    def make_generation_fast_(
        self, name="", retain_dropout=False, retain_dropout_modules=None, **unused
    ):
        """Called by fairseq's generator; keeps dropout active with its ``--retain-dropout``."""
        chosen = retain_dropout_modules is None or type(self).__name__ in retain_dropout_modules
        self.dropout_in_inference = bool(retain_dropout) and chosen

    def flatten_parameters(self) -> None:
        """Does nothing: there is one layout of the parameters. For code written for ``nn.LSTM``."""

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

    def layer_parameters(self, k: int, suffix: str = ""):
        """``(weight_ih, weight_hh, bias, elementwise parameters)`` of layer k in one direction.

        Biases are zeros where there are none.
        """

        def get(key):
            parameter = getattr(self, f"{key}_l{k}{suffix}")
            if parameter is None:
                parameter = self.weight_hh_l0.new_zeros(self.parameter_shapes(k)[f"{key}_l{k}"])
            return parameter

        params = tuple(get(key) for key, _ in self.cells[k].params)
        return get("weight_ih"), get("weight_hh"), get("bias"), params

    def mixture_weights(self, k: int, suffix: str, x: Tensor, tokens: Tensor | None):
        """The weights ``(…, S)``, or a HardRouting, of layer k's mixture of cells for its input
        ``x``; None for a cell that is no mixture.
        """
        return None

    def forward(self, x, state=None, lengths=None, tokens=None):
        """Run the stack over a batch.

        Args:
            x: ``(T, B, input_size)``, ``(B, T, input_size)`` with ``batch_first``, a
                PackedSequence, or a single sequence ``(T, input_size)``.
            state: ``(h_0, c_0)``, each ``(L*D, B, H)``, h_0 alone without c, or None for zeros.
            lengths: ``(B,)`` in any order, or None when nothing is padding or x is packed.
            tokens: ``(T, B)``, ``(B, T)`` with ``batch_first``; read only by routing by token.

        A single sequence has no dimension B, nor have its state, tokens and results.

        Returns:
            ``output, (h_n, c_n)``, or ``output, h_n`` without c. The output is ``(T, B, D*H)``,
            zero at padding, or a PackedSequence if x is one; h_n and c_n are ``(L*D, B, H)``, at
            each sequence's last step.

        Raises:
            UserError: shapes that do not fit.
        """
        expected = self.input_size, self.weight_ih_l0.dtype
        if isinstance(x, PackedSequence):
            forward = functools.partial(self._forward, state=state, tokens=tokens)
            return run_packed(forward, x, lengths, *expected)
        check_input(x, *expected, self.batch_first)
        single = x.dim() == 2
        if single:
            state = self._map_state(lambda part: part.unsqueeze(1), state)
            tokens = None if tokens is None else tokens.unsqueeze(1)
        elif self.batch_first and tokens is not None:
            tokens = tokens.transpose(0, 1)
        y = to_time_first(x, self.batch_first)
        output, final = self._forward(y, lengths, state, tokens)
        if single:
            final = self._map_state(lambda part: without_view(part.squeeze(1)), final)
        return from_time_first(output, x, self.batch_first), final

    def _map_state(self, function, state):
        """``function`` of each tensor of a state."""
        if isinstance(state, (tuple, list)):
            return tuple(map(function, state))
        return state if state is None else function(state)

    def _forward(self, x, lengths, state, tokens):
        """:meth:`forward` for x ``(T, B, input_size)``."""
        steps, batch, _ = x.shape
        lengths = check_lengths(lengths, steps, batch, x.device)
        mask = None
        if lengths is not None:
            mask = padding_mask(lengths, steps).unsqueeze(-1)
            # Not even NaN at padding may reach a weight's gradient.
            x = x.masked_fill(mask, 0.0)
        states = self._split_state(state, x)
        run = self._interleaved if self.bidirectional == "interleaved" else self._independent
        output, finals = run(x, states, lengths, tokens)
        if mask is not None:
            output = output.masked_fill(mask, 0.0)
        h_n = torch.stack([h for h, _ in finals])
        if not self.has_cell:
            return output, h_n
        return output, (h_n, torch.stack([c for _, c in finals]))

    def step(self, x: Tensor, state, tokens: Tensor | None = None):
        """One time step of a one-directional stack, for decoders.

        No mask outlives a step, so that ``weight_dropout`` and ``locked_dropout`` do nothing here.

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
        h_0, c_0 = state if self.has_cell else (state, None)
        hs, cs, lower_c = [], [], None
        for k, cell in enumerate(self.cells):
            if k > 0:
                x = dropout(x, self.dropout, self.drops)
            w_ih, w_hh, bias, params = self.layer_parameters(k)
            reads = {
                "lower_c": lower_c if cell.lower_cell else None,
                "mixture": self.mixture_weights(k, "", x, tokens),
                "params": params,
            }
            c = None if c_0 is None else c_0[k]
            x, lower_c = recurrence.one_step(cell, x, w_ih, bias, w_hh, h_0[k], c, **reads)
            hs.append(x)
            cs.append(lower_c)
        h = torch.stack(hs)
        return x, ((h, torch.stack(cs)) if self.has_cell else h)

    def zero_state(self, batch: int):
        """The all-zero state for ``batch`` sequences, in the form :meth:`forward` takes."""
        h = self.weight_hh_l0.new_zeros(
            self.num_layers * self.num_directions, batch, self.hidden_size
        )
        return (h, h.clone()) if self.has_cell else h

    def _check_state(self, state, batch):
        if self.has_cell != isinstance(state, (tuple, list)) or (self.has_cell and len(state) != 2):
            form = "a pair (h_0, c_0)" if self.has_cell else "one tensor, h_0"
            raise UserError(f"the state of a {type(self).__name__} is {form}")
        expected = (self.num_layers * self.num_directions, batch, self.hidden_size)
        dtype = self.weight_hh_l0.dtype
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
            allowed = {
                dtype,
                accumulation_dtype(dtype),
            }  # step() returns c in single precision for half

    def _split_state(self, state, x):
        """The initial (h, c) of each layer and direction, in ``nn.LSTM`` order."""
        if state is None:
            zero = x.new_zeros(x.size(1), self.hidden_size)
            slots = self.num_layers * self.num_directions
            return [(zero, zero if self.has_cell else None)] * slots
        self._check_state(state, x.size(1))
        return list(zip(*state, strict=True)) if self.has_cell else [(h, None) for h in state]

    def _run_layer(self, k, suffix, x, lower_c, state, last, tokens):
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

    def _between(self, x, k):
        drop = locked_dropout if self.locked_dropout else dropout
        return drop(x, self.dropout, self.drops) if k > 0 else x

    def _independent(self, x, states, lengths, tokens):
        last = None if lengths is None else lengths - 1
        reverse = reversal(lengths, x.size(0)) if self.bidirectional else None
        outputs, finals = [], [None] * len(states)
        for d, suffix in enumerate(self.suffixes):
            y = x if d == 0 else reverse(x)
            ids = tokens if d == 0 or tokens is None else reverse(tokens)
            lower_c = None
            for k in range(self.num_layers):
                slot = k * self.num_directions + d
                y, lower_c, h_n, c_n = self._run_layer(
                    k, suffix, self._between(y, k), lower_c, states[slot], last, ids
                )
                finals[slot] = (h_n, c_n)
            outputs.append(y if d == 0 else reverse(y))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1), finals

    def _interleaved(self, x, states, lengths, tokens):
        last = None if lengths is None else lengths - 1
        reverse = reversal(lengths, x.size(0))
        reversed_tokens = None if tokens is None else reverse(tokens)
        finals = []
        for k in range(self.num_layers):
            x, outputs = self._between(x, k), []
            for d, suffix in enumerate(self.suffixes):
                y, ids = (x, tokens) if d == 0 else (reverse(x), reversed_tokens)
                y, _, h_n, c_n = self._run_layer(k, suffix, y, None, states[len(finals)], last, ids)
                finals.append((h_n, c_n))
                outputs.append(y if d == 0 else reverse(y))
            x = torch.cat(outputs, dim=-1)
        return x, finals

    def extra_repr(self) -> str:
        """The sizes and what is not at its default, for ``repr``."""
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
