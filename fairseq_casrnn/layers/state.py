"""Recurrent states: (h, c), or h alone for cells without c."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

import torch
from torch import Tensor

from ..errors import UserError
from ..recurrence.inputs import accumulation_dtype

State: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""``(h, c)``, or h alone for a cell without c; each ``(L*D, B, H)``."""

LayerState: TypeAlias = tuple[Tensor, Tensor | None]
"""h and c of one layer in one direction, ``(B, H)`` each; c is None for a cell without c."""


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """``function`` of each tensor of a state, which may be unchecked."""
    if isinstance(state, (tuple, list)):
        return cast(State, tuple(map(function, state)))
    return function(state)


def check_state(
    state: State, shape: tuple[int, ...], dtype: torch.dtype, *, has_cell: bool, layer: str
) -> None:
    """Check the state that a layer is called with.

    Args:
        state: the state.
        shape: ``(L*D, B, H)``.
        dtype: of the layer's parameters.
        has_cell: whether the state is (h, c).
        layer: name of the layer, for messages.

    Raises:
        UserError: a state of another form or shape or, outside of autocast, of another dtype.
    """
    if has_cell != isinstance(state, (tuple, list)) or (has_cell and len(state) != 2):
        form = "a pair (h_0, c_0)" if has_cell else "one tensor, h_0"
        raise UserError(f"the state of a {layer} is {form}")
    allowed = {dtype}
    for part in state if has_cell else (state,):
        if not torch.is_tensor(part):
            raise UserError(f"a part of the state is {part!r}; expected a tensor")
        if tuple(part.shape) != shape:
            raise UserError(f"the state has shape {tuple(part.shape)}; expected {shape}")
        if part.dtype not in allowed and not torch.is_autocast_enabled(part.device.type):
            raise UserError(
                f"the state is of {part.dtype} and the layer of {dtype}; convert one of them, "
                f"as with state.to({dtype})"
            )
        # c may also have the dtype in which it is accumulated: step() returns it in that.
        allowed = {dtype, accumulation_dtype(dtype)}


def h_and_c(state: State) -> tuple[Tensor, Tensor | None]:
    """h and c of a state; c is None for a cell without c."""
    return (state, None) if isinstance(state, Tensor) else state


def as_state(h: Tensor, c: Tensor | None) -> State:
    """The inverse of :func:`h_and_c`."""
    return h if c is None else (h, c)


def state_parts(state: State) -> list[Tensor]:
    """The tensors of a state: [h, c], or [h] without c."""
    return [part for part in h_and_c(state) if part is not None]


def split_state(state: State) -> list[LayerState]:
    """(h, c) of each layer and direction, in ``nn.LSTM``'s order."""
    h, c = h_and_c(state)
    return list(zip(h, [None] * len(h) if c is None else c, strict=True))
