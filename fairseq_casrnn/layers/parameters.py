"""The cells of a stack and their parameters, without any computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from ..cells.base import Cell, at_least_one


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


class StackParameters(nn.Module):
    """The parameters of a stack of cells, in one or two directions.

    Args:
        cells: the cell of each layer, from the bottom.
        input_size, hidden_size: features of the input, and of every layer's state.
        bidirectional: False, True or "interleaved".
        bias, device, dtype: see :class:`TorchOptions`.

    Raises:
        UserError: a size below 1.
    """

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter

    def __init__(
        self,
        cells: Sequence[Cell],
        input_size: int,
        hidden_size: int,
        *,
        bidirectional: bool | str,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ):
        super().__init__()
        self.cells, self.num_layers = list(cells), len(cells)
        self.input_size = at_least_one("input_size", input_size)
        self.hidden_size = at_least_one("hidden_size", hidden_size)
        self.bidirectional, self.bias = bidirectional, bool(bias)
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
