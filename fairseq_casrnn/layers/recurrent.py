"""The recurrent layers; their base class is :class:`.stack.RecurrentStack`.

All of them also take ``bias``, ``batch_first``, ``device`` and ``dtype``
(:class:`.stack.TorchOptions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cells.cas_lstm import CASOptions
from ..cells.second_order_lstm import SecondOrderOptions
from ..errors import UserError
from ..recurrence.mixture import HardRouting, mix
from . import convert
from .stack import RecurrentStack, TorchOptions


class _PlainStack(RecurrentStack):
    """A stack of the family ``name``, whose cells have no options."""

    name: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool | str = False,
        dropout: float = 0.0,
        engine: str | None = None,
        **torch_options: Unpack[TorchOptions],
    ):
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(self.name, *sizes, bidirectional, dropout, engine=engine, **torch_options)


class _PlainDeepStack(_PlainStack):
    """:class:`_PlainStack` for cells that differ from an LSTM above the bottom layer only."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 2,
        bidirectional: bool | str = False,
        dropout: float = 0.0,
        engine: str | None = None,
        **torch_options: Unpack[TorchOptions],
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bidirectional, dropout, engine, **torch_options
        )


class LSTM(convert.TorchLSTMConversion, _PlainStack):
    """Stacked LSTM. Gates in the order i f g o; one bias per layer."""

    name = "stacked_lstm"


class NormalizedLSTM(_PlainStack):
    """LSTM with a softmax over input and forget gate (S-LSTM paper, eq. 1). Gates i f g o."""

    name = "normalized_lstm"


class GRU(_PlainStack):
    """Gated recurrent unit as in cuDNN. Gates r z n.

    ``bias_n_l{k}`` is the candidate's bias b_n, which the reset gate multiplies. The state is h
    alone: ``output, h_n = layer(x, h_0)``.
    """

    name = "stacked_gru"

    @classmethod
    def from_torch_gru(cls, gru: nn.GRU) -> GRU:
        """A layer equivalent to ``gru``. Raises UserError if there is none."""
        return convert.from_torch_gru(cls, gru)

    def to_torch_gru(self) -> nn.GRU:
        """An ``nn.GRU`` equivalent to this layer. Raises UserError if there is none."""
        return convert.to_torch_gru(self)


class CASLSTM(convert.TorchLSTMConversion, RecurrentStack):
    """Cell-aware stacked LSTM (its paper's eq. 7-13). Gates i f g o, above the bottom also v.

    ``lam`` (λ) weights the lower layer's cell: a number in [0, 1], "trainable", or None.
    """

    can_interleave = False  # the cell below would have two directions' units

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 2,
        lam: float | str | None = 0.5,
        bidirectional: bool | str = False,
        dropout: float = 0.0,
        engine: str | None = None,
        **torch_options: Unpack[TorchOptions],
    ):
        options = CASOptions(lam=lam)  # type: ignore[arg-type] # a string on the command line
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(
            "cas_lstm", *sizes, bidirectional, dropout, options, engine, **torch_options
        )

    @property
    def lam(self) -> float | str | None:
        """The argument ``lam``. It cannot be changed."""
        options: CASOptions = self.options
        return options.lam

    def extra_repr(self) -> str:
        """The sizes, λ and non-default options, for ``repr``."""
        return f"{super().extra_repr()}, lam={self.lam!r}"


class HighwayLSTM(convert.TorchLSTMConversion, _PlainDeepStack):
    """Highway LSTM (CAS-LSTM paper, eq. 17-18). Gates i f g o, above the bottom also d."""

    name = "highway_lstm"


class DGLSTM(_PlainDeepStack):
    """Depth-gated LSTM with peepholes (its paper's eq. 12-18).

    Gates i f g o, above the bottom also d.
    """

    name = "dg_lstm"


class SecondOrderLSTM(convert.TorchLSTMConversion, RecurrentStack):
    """Second-order attention LSTM (its paper's eq. a-e): S cells mixed by α = softmax(V x / τ).

    The temperature τ is a buffer and so part of every checkpoint; :meth:`set_epoch` anneals it. In
    ``eval()`` the routing is hard: each input goes to the cell with the largest weight (the first
    in a tie). Without gradients, the engine ``cpp`` then computes only that cell in
    :meth:`forward`, if the layer is large enough for that to be faster. If the attribute
    ``soft_routing`` is set, ``eval()`` mixes the cells as training does.

    Args:
        num_cells: S.
        routing: "attention", or "assignment" for a fixed table of each token's cell.
        assignment: ``(V,)`` cell of each token, for routing by assignment; ``forward`` then needs
            ``tokens``.
        temperature, temperature_decay, temperature_floor: τ in the first epoch, its factor per
            epoch, and its minimum.
    """

    plain_lstm_options: ClassVar[dict[str, Any]] = {"num_cells": 1}
    soft_routing = False
    options: SecondOrderOptions
    assignment: Tensor
    temperature: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        num_cells: int = 2,
        bidirectional: bool | str = False,
        dropout: float = 0.0,
        routing: str = "attention",
        assignment: Tensor | Sequence[int] | None = None,
        temperature: float = 1.0,
        temperature_decay: float = 0.9,
        temperature_floor: float = 1e-4,
        engine: str | None = None,
        **torch_options: Unpack[TorchOptions],
    ):
        options = SecondOrderOptions(num_cells, temperature, temperature_decay, temperature_floor)
        self._table = check_routing(options, routing, assignment)
        self.routing = routing
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(
            "second_order_lstm", *sizes, bidirectional, dropout, options, engine, **torch_options
        )
        device, dtype = torch_options.get("device"), torch_options.get("dtype")
        if self._table is not None:
            empty = torch.empty(len(self._table), dtype=torch.long, device=device)
            self.register_buffer("assignment", empty)
        else:
            self.register_buffer("temperature", torch.empty((), device=device, dtype=dtype))
        self._reset_buffers()

    def reset_parameters(self, bound: float | None = None) -> None:
        """As :meth:`RecurrentStack.reset_parameters`; also resets τ to that of the first epoch."""
        super().reset_parameters(bound)
        self._reset_buffers()

    def _reset_buffers(self) -> None:
        # The base class calls this before the buffers are registered.
        if "assignment" in self._buffers and self._table is not None:
            self.assignment.copy_(self._table)
        elif "temperature" in self._buffers:
            self.set_epoch(1)

    def parameter_shapes(self, k: int) -> dict[str, tuple[int, ...]]:
        """As in the base class; routing by assignment has no ``attention``."""
        shapes = super().parameter_shapes(k)
        if self.routing == "assignment":
            shapes.pop(f"attention_l{k}")
        return shapes

    def temperature_at(self, epoch: int) -> float:
        """τ in the 1-based ``epoch``: τ₁ · decay^(epoch-1), but at least the floor."""
        o = self.options
        tau: float = o.temperature * o.temperature_decay ** max(epoch - 1, 0)
        return max(tau, min(o.temperature_floor, o.temperature))

    def set_epoch(self, epoch: int) -> None:
        """Set the temperature to that of the 1-based ``epoch``, see :meth:`temperature_at`."""
        if self.routing == "attention":
            self.temperature.fill_(self.temperature_at(epoch))

    def mixture_weights(
        self, k: int, suffix: str, x: Tensor, tokens: Tensor | None
    ) -> Tensor | HardRouting:
        """Weights α ``(…, S)`` or HardRouting of layer k's cells for its input ``x``."""
        count = self.options.num_cells
        if self.routing == "assignment":
            if tokens is None:
                raise UserError("routing by assignment needs the tokens: pass tokens=…")
            if tokens.shape != x.shape[:-1]:
                raise UserError(
                    f"tokens has shape {tuple(tokens.shape)}; expected {tuple(x.shape[:-1])}, one "
                    "token per input"
                )
            return HardRouting(self.assignment[tokens], count)
        scores = F.linear(x, getattr(self, f"attention_l{k}{suffix}"))
        if not (self.training or self.soft_routing):
            return HardRouting(scores.argmax(-1), count)
        return mix(scores, self.temperature)

    def extra_repr(self) -> str:
        """The sizes, S and non-default options, for ``repr``."""
        routing = "" if self.routing == "attention" else f", routing={self.routing!r}"
        return f"{super().extra_repr()}, num_cells={self.options.num_cells}{routing}"


def check_routing(
    options: SecondOrderOptions, routing: str, assignment: Tensor | Sequence[int] | None
) -> Tensor | None:
    """The assignment as a tensor ``(V,)`` on the CPU; None for routing by attention.

    Raises:
        UserError: options that contradict each other, or a cell that does not exist.
    """
    if routing not in ("attention", "assignment"):
        raise UserError(f"routing is {routing!r}; use 'attention' or 'assignment'")
    if (assignment is not None) != (routing == "assignment"):
        raise UserError(
            "give assignment, the token-to-cell table, with routing='assignment' and only then"
        )
    table = None
    if assignment is not None:
        table = torch.as_tensor(assignment, device="cpu")
        fits = table.dim() == 1 and table.numel() and not table.is_floating_point()
        if not fits or not 0 <= int(table.min()) <= int(table.max()) < options.num_cells:
            raise UserError(
                f"assignment must be a list of cells from 0 to {options.num_cells - 1}, "
                "one per token"
            )
        table = table.to(torch.long, copy=True)
    if not (options.temperature >= 1e-6 and options.temperature_floor >= 1e-6):
        raise UserError("temperature and temperature_floor must be at least 1e-06")
    if not 0 < options.temperature_decay <= 1:
        raise UserError(f"temperature_decay is {options.temperature_decay}; it must lie in (0, 1]")
    return table
