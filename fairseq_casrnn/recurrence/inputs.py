"""The inputs of engines, and the precision in which engines keep states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells.base import Cell
from ..errors import UserError

MaybeTensor = TypeVar("MaybeTensor", Tensor, Tensor | None)
"""A function that gets a Tensor returns a Tensor; one that may get None may return None."""


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of pre-activations and cell states, given that of inputs and weights."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def autocast(device: str) -> bool:
    """Whether torch.autocast is active for this type of device."""
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)


def cast(tensor: MaybeTensor, dtype: torch.dtype) -> MaybeTensor:
    """``tensor``, or None, in ``dtype``."""
    return None if tensor is None else tensor.to(dtype)


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd records operations on these; None among them is ignored."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def take_step(
    cell: Cell, gx: Tensor, gh: Tensor, h: Tensor, c: Tensor | None, **reads: Any
) -> tuple[Tensor, Tensor | None]:
    """:meth:`Cell.step`, checked, since PyTorch would broadcast states of other shapes.

    Raises:
        UserError: it does not return h and c, ``(B, H)`` each, or h and None without a cell state.
    """
    states: Any = cell.step(gx, gh, h, c, **reads)
    expected = [h.shape, h.shape if cell.has_cell else None]
    # A tensor is not unpacked: h alone would be h and c in a batch of two.
    parts = list(states) if isinstance(states, tuple | list) else [states]
    found = [part.shape if isinstance(part, Tensor) else part for part in parts]
    if found != expected:
        raise UserError(
            f"{type(cell).__name__}.step returns {describe(found)}; it must return the new h and "
            f"{'c, both' if cell.has_cell else 'None, h'} of shape {tuple(h.shape)}"
        )
    new_h, new_c = parts
    return new_h, new_c


def describe(shapes: list[Any]) -> str:
    """What a step returned, in words: shapes of tensors, and other values."""
    return " and ".join(
        f"a tensor {tuple(shape)}" if isinstance(shape, torch.Size) else repr(shape)
        for shape in shapes
    )


@dataclass(frozen=True)
class InputProduct:
    """W x + b for all steps, not computed yet, since some engines compute it within their loop.

    Attributes:
        x: ``(T, B, I)``.
        weight: ``(ih_blocks*H, I)``.
        bias: ``(ih_blocks*H,)``.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor

    def compute(self) -> Tensor:
        """``(T, B, ih_blocks*H)``."""
        return F.linear(self.x, self.weight, self.bias)


class LayerInputs(NamedTuple):
    """The arguments of :func:`fairseq_casrnn.recurrence.run`, as engines take them.

    Attributes:
        cell: the cell.
        gx: ``(T, B, ih_blocks*H)``, W x + b, or an :class:`InputProduct`.
        weight_hh: ``(hh_blocks*H, H)``.
        h0, c0: ``(B, H)``; c0 is None for a cell without c.
        lower_c: ``(T, B, H)``, or None.
        mixture: ``(T, B, S)``, or None.
        last: ``(B,)``, or None for T-1.
        params: the elementwise parameters in the cell's order.
    """

    cell: Cell
    gx: Tensor | InputProduct
    weight_hh: Tensor
    h0: Tensor
    c0: Tensor | None
    lower_c: Tensor | None = None
    mixture: Tensor | None = None
    last: Tensor | None = None
    params: Sequence[Tensor] = ()

    def gates_input(self) -> Tensor:
        """W x + b, ``(T, B, ih_blocks*H)``; computed if ``gx`` is an :class:`InputProduct`."""
        return self.gx.compute() if isinstance(self.gx, InputProduct) else self.gx

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All floating-point tensors, weight_hh first."""
        _, gx, weight_hh, h0, c0, lower_c, mixture, _, params = self
        if isinstance(gx, InputProduct):
            return weight_hh, gx.x, gx.weight, gx.bias, h0, c0, lower_c, mixture, *params
        return weight_hh, gx, h0, c0, lower_c, mixture, *params


LayerOutputs: TypeAlias = tuple[Tensor, Tensor | None, Tensor, Tensor | None]
"""``hs, cs`` ``(T, B, H)`` and ``h_n, c_n`` ``(B, H)``; the c's are None for a cell without c."""


class LoopTensors(NamedTuple):
    """The tensors of :class:`LayerInputs` in the order of the compiled loops' arguments.

    Either gx is None, or x, weight_ih and bias are. ``side`` is the cell state of the layer below
    ``(T, B, H)`` or the weights of a mixture ``(T, B, S)``, which kernels read through the same
    pointer; no cell with a kernel reads both.
    """

    gx: Tensor | None
    x: Tensor | None
    weight_ih: Tensor | None
    bias: Tensor | None
    weight_hh: Tensor
    h0: Tensor
    c0: Tensor | None
    side: Tensor | None

    @classmethod
    def of(cls, inputs: LayerInputs) -> LoopTensors:
        """The tensors of ``inputs``."""
        _, gx, weight_hh, h0, c0, lower_c, mixture, _, _ = inputs
        side = mixture if lower_c is None else lower_c
        if isinstance(gx, InputProduct):
            return cls(None, gx.x, gx.weight, gx.bias, weight_hh, h0, c0, side)
        return cls(gx, None, None, None, weight_hh, h0, c0, side)


class LossSpec(NamedTuple):
    """The loss that a criterion requests from a decoder instead of logits.

    Attributes:
        target: ``(*)``, tokens.
        smoothing: probability mass shared by all tokens but the target.
        pad: the target that is not counted.
    """

    target: Tensor
    smoothing: float
    pad: int
