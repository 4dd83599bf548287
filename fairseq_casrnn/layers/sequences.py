"""Padded batches: lengths, reversal, packed sequences. All shapes are time-first, (T, B, …)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..errors import UserError
from ..recurrence.memory import on_host, readable

R = TypeVar("R")


class KnownLengths(NamedTuple):
    """Lengths that a layer does not check: reading them would synchronise with the GPU.

    Attributes:
        values: ``(B,)``, int64, from 1 to T, on the input's device; read only.
    """

    values: Tensor


Lengths: TypeAlias = Tensor | KnownLengths | Sequence[int] | None


def trusted(lengths: Tensor) -> Tensor | KnownLengths:
    """Mark lengths computed by a model itself, which layers then check only on the CPU."""
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
    """``x`` as ``(T, B, …)``, from ``(B, T, …)`` if batch_first, or from a single ``(T, I)``."""
    if x.dim() == 2:
        return x.unsqueeze(1)
    return x.transpose(0, 1) if batch_first else x


def from_time_first(output: Tensor, x: Tensor, batch_first: bool) -> Tensor:
    """The inverse of :func:`to_time_first` for a layer's output, given the layer's input x."""
    if x.dim() == 2:
        output = output.squeeze(1)
    elif batch_first:
        output = output.transpose(0, 1)
    return without_view(output)


def without_view(tensor: Tensor) -> Tensor:
    """``tensor``, or a copy if autograd tracks it as a view.

    In-place operations on a view of a buffer that a backward reads would raise, and FSDP loses its
    hooks on views. torch.compile needs no copies, so none are made under it.
    """
    if torch.compiler.is_compiling():
        return tensor
    return tensor.clone() if tensor.requires_grad and tensor._is_view() else tensor


def check_lengths(lengths: Lengths, steps: int, batch: int, device: torch.device) -> Tensor | None:
    """A copy of ``lengths`` as int64 on ``device``, or None when every sequence has all ``steps``.

    The values of fake, batched or traced tensors cannot be checked. :class:`KnownLengths` are
    returned as they are.

    Raises:
        UserError: not one length per sequence, or a length outside 1…steps.
    """
    if lengths is None:
        return None
    if isinstance(lengths, KnownLengths):
        return lengths.values
    if isinstance(lengths, Tensor):
        tensor = lengths
    else:
        try:
            tensor = torch.as_tensor(lengths, device="cpu")
        except (TypeError, ValueError):
            raise UserError(f"lengths is {lengths!r}; give one whole number per sequence") from None
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise UserError(f"lengths is of {tensor.dtype}; give one whole number per sequence")
    if tensor.shape != (batch,):
        raise UserError(
            f"lengths has shape {tuple(tensor.shape)}; expected ({batch},), one per sequence"
        )
    if batch == 0:
        return None
    # A copy: the caller may change the original before the backward reads it.
    checked = tensor.to(device, torch.long, copy=True)
    if not readable(tensor):
        return checked
    if tensor.is_floating_point() and not torch.equal(checked.to(tensor), tensor):
        raise UserError("lengths holds fractions; give one whole number per sequence")
    low, high = (int(v) for v in tensor.aminmax())
    if low < 1 or high > steps:
        raise UserError(f"lengths run from {low} to {high}; each must lie in 1…{steps}")
    return None if low == steps else checked


def rows_at(steps: Tensor) -> Tensor:
    """Row indices ``(T*B,)`` into ``(T*B, …)``, given the time step ``(T, B)`` of each row."""
    batch = steps.size(1)
    return (steps * batch + torch.arange(batch, device=steps.device)).flatten()


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """``x`` (T, B, …) with its rows rearranged to ``rows``, see :func:`rows_at`.

    Advanced indexing ``x[steps, sequences]`` is equivalent, but its backward sorts indices on a
    GPU.
    """
    return x.flatten(0, 1).index_select(0, rows).view(x.shape)


def reversal(lengths: Tensor | None, steps: int) -> Callable[[Tensor], Tensor]:
    """A function that reverses each sequence of a tensor ``(T, B, …)`` within its length."""
    if lengths is None:
        return lambda x: x.flip(0)
    t = torch.arange(steps, device=lengths.device).unsqueeze(1)
    rows = rows_at(torch.where(t < lengths, lengths - 1 - t, t))
    return lambda x: take_rows(x, rows)


def run_packed(
    forward: Callable[[Tensor, Tensor], tuple[Tensor, R]],
    packed: PackedSequence,
    lengths: Lengths,
    size: int,
    dtype: torch.dtype,
) -> tuple[PackedSequence, R]:
    """Call ``forward`` with a packed sequence: unpack the input, pack the output.

    Args:
        forward: takes ``(T, B, size)`` and lengths; its first result is ``(T, B, …)``.
        packed: the input.
        lengths: must be None; a packed sequence has its own.
        size, dtype: see :func:`check_input`.

    Raises:
        UserError: ``lengths`` given; input that :func:`check_input` refuses.
    """
    if lengths is not None:
        raise UserError("a PackedSequence has its own lengths; leave lengths out")
    x, packed_lengths = pad_packed_sequence(packed)  # in the caller's order
    check_input(x, size, dtype)
    output, rest = forward(x, packed_lengths)
    return repack(output, packed_lengths, packed), rest


def repack(output: Tensor, lengths: Tensor, like: PackedSequence) -> PackedSequence:
    """Pack ``output`` (T, B, …), which is in the caller's order, in the layout of ``like``."""
    order = like.sorted_indices
    if order is not None:
        output, lengths = output.index_select(1, order), lengths[order.cpu()]
    data = pack_padded_sequence(output, lengths.cpu()).data
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)
