"""Padded batches: lengths, reversal, packed sequences. Shapes are (T, B, …) throughout."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..errors import UserError
from ..recurrence.memory import on_host, readable


class KnownLengths(NamedTuple):
    """Lengths that a layer need not look at, which would wait for a GPU: each lies in 1…T.

    Attributes:
        values: ``(B,)``, int64, on the input's device; nobody writes to them.
    """

    values: Tensor


def trusted(lengths: Tensor) -> Tensor | KnownLengths:
    """For a layer, ``lengths`` that a model has made itself; as they are where looking is free."""
    return lengths if on_host(lengths) else KnownLengths(lengths)


def check_input(x: Tensor, size: int, dtype: torch.dtype, batch_first: bool = False) -> None:
    """Check that x is ``(T, B, size)``, ``(B, T, size)`` if batch_first, or ``(T, size)``.

    Raises:
        UserError: another shape, no time step, or, outside of autocast, another dtype.
    """
    shape = tuple(x.shape)
    if len(shape) not in (2, 3) or shape[-1] != size:
        expected = "batch, time" if batch_first else "time, batch"
        raise UserError(
            f"input has shape {shape}; expected ({expected}, {size}), or (time, {size}) for a "
            "single sequence"
        )
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise UserError(
            f"input is of {x.dtype} and the layer of {dtype}; convert one of them, as with "
            f"x.to({dtype})"
        )
    if shape[1 if batch_first and len(shape) == 3 else 0] == 0:
        raise UserError(f"input has shape {shape}; it needs at least one time step")


def to_time_first(x: Tensor, batch_first: bool) -> Tensor:
    """X as ``(T, B, …)``, from ``(B, T, …)`` if batch_first, or from a single ``(T, I)``."""
    if x.dim() == 2:
        return x.unsqueeze(1)
    return x.transpose(0, 1) if batch_first else x


def from_time_first(output: Tensor, x: Tensor, batch_first: bool) -> Tensor:
    """The reverse of :func:`to_time_first` for a layer's output, x being its input as given."""
    if x.dim() == 2:
        output = output.squeeze(1)
    elif batch_first:
        output = output.transpose(0, 1)
    return without_view(output)


def without_view(tensor: Tensor) -> Tensor:
    """``tensor``, or a copy where autograd knows it as a view.

    In-place operations on a view of a buffer that a backward reads would be refused, and FSDP
    loses its hooks on any view. What torch.compile traces, it puts together by itself.
    """
    if torch.compiler.is_compiling():
        return tensor
    return tensor.clone() if tensor.requires_grad and tensor._is_view() else tensor


def check_lengths(lengths, steps: int, batch: int, device) -> Tensor | None:
    """A copy of ``lengths`` as int64 on ``device``, or None when every sequence has all ``steps``.

    The values of lengths that are fake, batched or being traced cannot be looked at;
    :class:`KnownLengths` are taken as they are.

    Raises:
        UserError: not one length per sequence, or a length outside 1…steps.
    """
    if lengths is None:
        return None
    if isinstance(lengths, KnownLengths):
        return lengths.values
    given = lengths
    if not torch.is_tensor(lengths):
        try:
            given = torch.as_tensor(lengths, device="cpu")
        except (TypeError, ValueError):
            raise UserError(f"lengths is {lengths!r}; give one whole number per sequence") from None
    if given.dtype == torch.bool or given.is_complex():
        raise UserError(f"lengths is of {given.dtype}; give one whole number per sequence")
    if given.shape != (batch,):
        raise UserError(
            f"lengths has shape {tuple(given.shape)}; expected ({batch},), one per sequence"
        )
    if batch == 0:
        return None
    # A copy, since autograd may read it again after the caller has changed the original.
    lengths = given.to(device, torch.long, copy=True)
    if not readable(given):
        return lengths
    if given.is_floating_point() and not torch.equal(lengths.to(given), given):
        raise UserError("lengths holds fractions; give one whole number per sequence")
    low, high = (int(v) for v in given.aminmax())
    if low < 1 or high > steps:
        raise UserError(f"lengths run from {low} to {high}; each must lie in 1…{steps}")
    return None if low == steps else lengths


def rows_at(steps: Tensor) -> Tensor:
    """Numbers of rows among all ``T*B`` of a batch, ``(T*B,)``, from those of steps ``(T, B)``."""
    batch = steps.size(1)
    return (steps * batch + torch.arange(batch, device=steps.device)).flatten()


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """``x`` (T, B, …) with its rows in the order of :func:`rows_at`.

    Indexing with steps and sequences would do the same; its backward sorts the indices on a GPU.
    """
    return x.flatten(0, 1).index_select(0, rows).view(x.shape)


def reversal(lengths: Tensor | None, steps: int) -> Callable[[Tensor], Tensor]:
    """What reverses each sequence of a ``(T, B, …)`` within its own length; padding stays."""
    if lengths is None:
        return lambda x: x.flip(0)
    t = torch.arange(steps, device=lengths.device).unsqueeze(1)
    rows = rows_at(torch.where(t < lengths, lengths - 1 - t, t))
    return lambda x: take_rows(x, rows)


def unpack(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """A packed sequence as ``(T, B, …)`` in the caller's order, with its lengths ``(B,)``."""
    return pad_packed_sequence(packed)


def run_packed(
    forward: Callable, packed: PackedSequence, lengths: Tensor | None, size: int, dtype: torch.dtype
):
    """``forward(x, lengths)``, whose first result is ``(T, B, …)``, from and to packed sequences.

    Raises:
        UserError: ``lengths`` beside a packed sequence; input that :func:`check_input` refuses.
    """
    if lengths is not None:
        raise UserError("a PackedSequence has its own lengths; leave lengths out")
    x, lengths = unpack(packed)
    check_input(x, size, dtype)
    output, *rest = forward(x, lengths)
    return repack(output, lengths, packed), *rest


def repack(output: Tensor, lengths: Tensor, like: PackedSequence) -> PackedSequence:
    """``output`` (T, B, …), in the caller's order, packed exactly as ``like`` is."""
    order = like.sorted_indices
    if order is not None:
        output, lengths = output.index_select(1, order), lengths[order.cpu()]
    data = pack_padded_sequence(output, lengths.cpu()).data
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)
