"""Stacked bidirectional LSTMs with shortcut connections: each layer reads all layers below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, Unpack, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..cells.base import at_least_one
from ..errors import UserError
from .dropout import dropout, dropout_probability
from .recurrent import LSTM
from .sequences import (
    KnownLengths,
    Lengths,
    check_input,
    check_lengths,
    from_time_first,
    run_packed,
    to_time_first,
    without_view,
)
from .stack import TorchOptions

Pair: TypeAlias = tuple[Tensor, Tensor]

CONNECTIONS = ("shortcut", "residual", "word", "none")


class ShortcutStackedLSTM(nn.Module):
    """Shortcut-stacked bidirectional LSTM (Nie and Bansal 2017, eq. 1-3).

    Layer i is a bidirectional LSTM. The bottom layer reads the words w. The input of the other
    layers, made of w and the outputs h¹, …, hⁱ⁻¹ of the layers below, depends on ``connection``:

    - ``shortcut``: [w, h¹, …, hⁱ⁻¹]
    - ``residual``: [w, h¹ + … + hⁱ⁻¹]; all layers need the same size
    - ``word``: [w, hⁱ⁻¹]
    - ``none``: hⁱ⁻¹, as in a plain stack

    Args:
        input_size: features of w.
        hidden_sizes: hidden size of each layer, in each direction.
        connection: one of the above.
        dropout: on the outputs of lower layers that a layer reads, not on the words.
        engine: name of a recurrence engine, None for the default.
        bias, batch_first, device, dtype: see :class:`.stack.TorchOptions`.

    Parameters: those of :class:`.LSTM` under ``layers.{i}.``, for instance
    ``layers.0.weight_ih_l0_reverse``.

    Raises:
        UserError: no layer, a size below 1, an unknown connection, ``residual`` with unequal
            sizes.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        connection: str = "shortcut",
        dropout: float = 0.0,
        engine: str | None = None,
        **torch_options: Unpack[TorchOptions],
    ):
        super().__init__()
        if connection not in CONNECTIONS:
            raise UserError(f"connection is {connection!r}; use one of {', '.join(CONNECTIONS)}")
        sizes = [at_least_one("a hidden size", size) for size in hidden_sizes]
        if not sizes:
            raise UserError("hidden_sizes is empty; give the hidden size of each layer")
        if connection == "residual" and len(set(sizes)) > 1:
            raise UserError(
                f"hidden_sizes are {sizes}; residual connections add the layers' outputs and need "
                "equal sizes"
            )
        self.input_size = at_least_one("input_size", input_size)
        self.hidden_sizes, self.connection = tuple(sizes), connection
        self.dropout = dropout_probability(dropout)
        self.output_size = 2 * sizes[-1]
        self.batch_first = bool(torch_options.pop("batch_first", False))
        self.layers = nn.ModuleList(
            LSTM(self.layer_input_size(i), size, bidirectional=True, engine=engine, **torch_options)
            for i, size in enumerate(sizes)
        )

    def layer_input_size(self, i: int) -> int:
        """Features of layer i's input."""
        if i == 0:
            return self.input_size
        below = [2 * size for size in self.hidden_sizes[:i]]
        return {
            "shortcut": self.input_size + sum(below),
            "residual": self.input_size + below[-1],
            "word": self.input_size + below[-1],
            "none": below[-1],
        }[self.connection]

    def layer_input(self, x: Tensor, outputs: list[Tensor]) -> Tensor:
        """Input of the next layer, given the words x and the ``outputs`` of all layers below.

        All tensors are ``(T, B, …)``.
        """
        if not outputs:
            return x
        if self.connection == "shortcut":
            below = torch.cat(outputs, dim=-1)
        elif self.connection == "residual":
            below = sum(outputs[1:], outputs[0])
        else:
            below = outputs[-1]
        below = dropout(below, self.dropout, self.training)
        return below if self.connection == "none" else torch.cat([x, below], dim=-1)

    @overload
    def forward(self, x: Tensor, lengths: Lengths = None) -> tuple[Tensor, Pair]: ...
    @overload
    def forward(self, x: PackedSequence, lengths: None = None) -> tuple[PackedSequence, Pair]: ...
    def forward(
        self, x: Tensor | PackedSequence, lengths: Lengths = None
    ) -> tuple[Tensor | PackedSequence, Pair]:
        """Run all layers.

        Args:
            x: ``(T, B, input_size)``, ``(B, T, input_size)`` with ``batch_first``, a
                PackedSequence, or a single sequence ``(T, input_size)``.
            lengths: ``(B,)`` in any order, or None when nothing is padding or x is packed.

        With a single sequence, the results have no dimension B.

        Returns:
            ``output, (h_n, c_n)`` of the last layer. The output is ``(T, B, 2H)``, or ``(B, T,
            2H)`` with ``batch_first``, zero at padding, or a PackedSequence if x is one; h_n and
            c_n are ``(2, B, H)``.

        Raises:
            UserError: shapes that do not fit.
        """
        bottom: Any = self.layers[0]
        dtype: torch.dtype = bottom.weight_ih_l0.dtype
        if isinstance(x, PackedSequence):
            return run_packed(self._forward, x, lengths, self.input_size, dtype)
        check_input(x, self.input_size, dtype, self.batch_first)
        output, (h_n, c_n) = self._forward(to_time_first(x, self.batch_first), lengths)
        if x.dim() == 2:
            h_n, c_n = (without_view(part.squeeze(1)) for part in (h_n, c_n))
        return from_time_first(output, x, self.batch_first), (h_n, c_n)

    def _forward(self, x: Tensor, unchecked: Lengths) -> tuple[Tensor, Pair]:
        """:meth:`forward` for x ``(T, B, input_size)``."""
        checked = check_lengths(unchecked, x.size(0), x.size(1), x.device)
        lengths = None if checked is None else KnownLengths(checked)
        outputs: list[Tensor] = []
        for layer in self.layers:
            output, state = layer(self.layer_input(x, outputs), lengths=lengths)
            outputs.append(output)
        return output, state

    def extra_repr(self) -> str:
        """The sizes and non-default options, for ``repr``."""
        rest = "".join(
            f", {name}={value}"
            for name, value in (("dropout", self.dropout), ("batch_first", self.batch_first))
            if value
        )
        return f"{self.input_size}, {list(self.hidden_sizes)}, connection={self.connection!r}{rest}"

    def flatten_parameters(self) -> None:
        """Does nothing: for compatibility with ``nn.LSTM``."""
