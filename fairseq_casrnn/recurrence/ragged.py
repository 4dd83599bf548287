"""Padding masks, and the two layouts in which the compiled loop processes a padded batch."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from .eager import scatter_last_grad
from .inputs import MaybeTensor
from .reference import gather_last


def padding_mask(lengths: Tensor, steps: int) -> Tensor:
    """``(T, B)`` bool, True at padding."""
    return torch.arange(steps, device=lengths.device).unsqueeze(1) >= lengths.unsqueeze(0)


def after_start(states: Tensor, batch: int) -> Tensor:
    """``(N, H)``: the states ``(B+N, H)`` without the initial ones, which come first."""
    return states.narrow(0, batch, states.size(0) - batch)


class PaddedLayout:
    """All B sequences at every step, as in ``(T, B, …)``, padding included. N is T*B.

    Attributes:
        counts: number of sequences at each step, or None if it is always B.
        batch: B.
    """

    counts: list[int] | None = None

    def __init__(self, steps: int, batch: int, last: Tensor | None = None):
        self.steps, self.batch, self.last = steps, batch, last

    def pack(self, tensor: MaybeTensor) -> MaybeTensor:
        """Convert ``(T, B, …)`` to rows ``(N, …)``."""
        return None if tensor is None else tensor.flatten(0, 1)

    def unpack(self, rows: MaybeTensor) -> MaybeTensor:
        """Convert rows ``(N, …)`` to ``(T, B, …)``."""
        return None if rows is None else rows.view(self.steps, self.batch, *rows.shape[1:])

    def sort(self, tensor: MaybeTensor) -> MaybeTensor:
        """Reorder the sequences of ``(B, …)`` to the order of the rows."""
        return tensor

    unsort = sort
    """The inverse of :meth:`sort`."""

    def final(self, states: Tensor) -> Tensor:
        """The states ``(B, H)`` after each sequence's last step, given all states ``(B+N, H)``."""
        if self.last is None:
            return states.narrow(0, states.size(0) - self.batch, self.batch).clone()
        return gather_last(self.unpack(after_start(states, self.batch)), self.last)

    def merge_grads(
        self, grad: Tensor | None, grad_last: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients that the backward loop reads.

        Args:
            grad: of all states, ``(T, B, H)``, or None.
            grad_last: of :meth:`final`'s states, ``(B, H)``, or None.

        Returns:
            ``(N, H)`` or None, of all states; ``(B, H)`` or None, of those after step T-1.
        """
        grad, start = scatter_last_grad(grad, grad_last, self.last, self.steps)
        return self.pack(grad), start


class PackedLayout:
    """Rows without padding: each step has one row for each sequence that reaches it, longest first.

    It has the methods of :class:`PaddedLayout`. N is the sum of all lengths.
    """

    counts: list[int]

    def __init__(self, steps: int, batch: int, last: Tensor):
        self.steps, self.batch = steps, batch
        ends, self.order = last.sort(descending=True, stable=True)
        real = ~padding_mask(ends + 1, steps)
        counts = real.sum(1)
        self.counts = counts[counts > 0].tolist()
        self.places = (torch.arange(steps, device=last.device).unsqueeze(1) * batch + self.order)[
            real
        ]  # flat index in (T, B) of each row
        starts = counts.cumsum(0) - counts  # first row of each step
        self.ends = torch.empty_like(last)  # row of each sequence's last step
        self.ends[self.order] = starts[ends] + torch.arange(batch, device=last.device)

    def pack(self, tensor: MaybeTensor) -> MaybeTensor:
        """Convert ``(T, B, …)`` to rows ``(N, …)``, without padding."""
        return None if tensor is None else tensor.flatten(0, 1).index_select(0, self.places)

    def unpack(self, rows: MaybeTensor) -> MaybeTensor:
        """Convert rows ``(N, …)`` to ``(T, B, …)``, zero at padding."""
        if rows is None:
            return None
        padded = rows.new_zeros(self.steps * self.batch, *rows.shape[1:])
        return padded.index_copy_(0, self.places, rows).view(
            self.steps, self.batch, *rows.shape[1:]
        )

    def sort(self, tensor: MaybeTensor) -> MaybeTensor:
        """Reorder the sequences of ``(B, …)`` to the order of the rows."""
        return None if tensor is None else tensor.index_select(0, self.order)

    def unsort(self, tensor: MaybeTensor) -> MaybeTensor:
        """The inverse of :meth:`sort`."""
        if tensor is None:
            return None
        return torch.empty_like(tensor).index_copy_(0, self.order, tensor)

    def final(self, states: Tensor) -> Tensor:
        """The states ``(B, H)`` after each sequence's last step, given all states ``(B+N, H)``."""
        return states.index_select(0, self.batch + self.ends)

    def merge_grads(
        self, grad: Tensor | None, grad_last: Tensor | None
    ) -> tuple[Tensor | None, None]:
        """As :meth:`PaddedLayout.merge_grads`; ``grad_last`` is always merged into the first."""
        if grad_last is None:
            return self.pack(grad), None
        if grad is None:
            rows = grad_last.new_zeros(len(self.places), grad_last.size(1))
        else:
            rows = self.pack(grad)
        return rows.index_add_(0, self.ends, grad_last), None


Layout: TypeAlias = PaddedLayout | PackedLayout
