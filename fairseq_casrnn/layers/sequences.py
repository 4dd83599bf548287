"""Padded batches: lengths, reversal, packed sequences. Shapes are (T, B, …) throughout."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..errors import UserError


def check_lengths(lengths, steps: int, batch: int, device) -> Tensor | None:
    """``lengths`` as a long tensor on ``device``, or None when every sequence fills all ``steps``.

    Raises:
        UserError: not one length per sequence, or a length outside 1…steps.
    """
    if lengths is None:
        return None
    try:
        given = torch.as_tensor(lengths)
    except (TypeError, ValueError):
        raise UserError(f"lengths is {lengths!r}; give one whole number per sequence") from None
    lengths = given.long()
    if given.is_floating_point() and not torch.equal(lengths.to(given.dtype), given):
        raise UserError("lengths holds fractions; give one whole number per sequence")
    if lengths.shape != (batch,):
        raise UserError(
            f"lengths has shape {tuple(lengths.shape)}; expected ({batch},), one per sequence"
        )
    low, high = (int(v) for v in lengths.aminmax())
    if low < 1 or high > steps:
        raise UserError(f"lengths run from {low} to {high}; each must lie in 1…{steps}")
    return None if low == steps else lengths.to(device)


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence of ``x`` (T, B, …) reversed within its own length; padding stays."""
    if lengths is None:
        return x.flip(0)
    t = torch.arange(x.size(0), device=x.device).unsqueeze(1)
    index = torch.where(t < lengths, lengths - 1 - t, t)  # (T, B)
    return x[index, torch.arange(x.size(1), device=x.device)]


def unpack(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """A packed sequence as ``(T, B, …)`` in the caller's order, with its lengths ``(B,)``."""
    return pad_packed_sequence(packed)


def run_packed(forward: Callable, packed: PackedSequence, lengths: Tensor | None):
    """``forward(x, lengths)``, whose first result is ``(T, B, …)``, from and to packed sequences.

    Raises:
        UserError: ``lengths`` beside a packed sequence.
    """
    if lengths is not None:
        raise UserError("a PackedSequence has its own lengths; leave lengths out")
    x, lengths = unpack(packed)
    output, *rest = forward(x, lengths)
    return repack(output, lengths, packed), *rest


def repack(output: Tensor, lengths: Tensor, like: PackedSequence) -> PackedSequence:
    """``output`` (T, B, …), in the caller's order, packed exactly as ``like`` is."""
    order = like.sorted_indices
    if order is not None:
        output, lengths = output.index_select(1, order), lengths[order.cpu()]
    data = pack_padded_sequence(output, lengths.cpu()).data
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)
