"""Where padding is, and where a padded batch's rows lie while the compiled loop runs over them."""

from __future__ import annotations

import torch
from torch import Tensor

from .eager import scatter_last_grad
from .reference import gather_last


def padding_mask(lengths: Tensor, steps: int) -> Tensor:
    """``(T, B)`` bool, True at padding."""
    return torch.arange(steps, device=lengths.device).unsqueeze(1) >= lengths.unsqueeze(0)


def after_start(states: Tensor, batch: int) -> Tensor:
    """``(N, H)`` of ``(B+N, H)``, the initial states first."""
    return states.narrow(0, batch, states.size(0) - batch)


class PaddedLayout:
    """Every step has all B sequences: the rows lie as they do in ``(T, B, …)``.

    Attributes:
        counts: sequences in each step, or None where they are B in all.
        batch: B.
    """

    def __init__(self, steps: int, batch: int, last: Tensor | None = None):
        self.steps, self.batch, self.last = steps, batch, last
        self.counts = None

    def pack(self, tensor: Tensor | None) -> Tensor | None:
        """``(N, …)`` of ``(T, B, …)``."""
        return None if tensor is None else tensor.flatten(0, 1)

    def unpack(self, rows: Tensor | None) -> Tensor | None:
        """``(T, B, …)`` of ``(N, …)``."""
        return None if rows is None else rows.view(self.steps, self.batch, *rows.shape[1:])

    def sort(self, tensor: Tensor | None) -> Tensor | None:
        """``(B, …)`` with the sequences in the order of the rows."""
        return tensor

    unsort = sort
    """The reverse."""

    def final(self, states: Tensor) -> Tensor:
        """The states ``(B, H)`` after each sequence's last step, of all ``(B+N, H)``."""
        if self.last is None:
            return states.narrow(0, states.size(0) - self.batch, self.batch).clone()
        return gather_last(self.unpack(after_start(states, self.batch)), self.last)

    def merge_grads(self, grad: Tensor | None, grad_last: Tensor | None):
        """From gradients of all states ``(T, B, H)`` and of :meth:`final`'s, those the loop wants.

        Returns:
            ``(N, H)`` or None, and ``(B, H)`` or None, of the states after the last step.
        """
        grad, start = scatter_last_grad(grad, grad_last, self.last, self.steps)
        return self.pack(grad), start


class PackedLayout:
    """Without padding: in each step the sequences that are as long, the longest first.

    The methods are those of :class:`PaddedLayout`; what they return is zero at padding.
    """

    def __init__(self, steps: int, batch: int, last: Tensor):
        self.steps, self.batch = steps, batch
        ends, self.order = last.sort(descending=True, stable=True)
        real = ~padding_mask(ends + 1, steps)
        counts = real.sum(1)
        self.counts = counts[counts > 0].tolist()
        self.places = (torch.arange(steps, device=last.device).unsqueeze(1) * batch + self.order)[
            real
        ]  # in (T, B)
        before = counts.cumsum(0) - counts
        self.ends = torch.empty_like(last)  # the row of each sequence's last step
        self.ends[self.order] = before[ends] + torch.arange(batch, device=last.device)

    def pack(self, tensor):
        """``(N, …)`` of ``(T, B, …)``."""
        return None if tensor is None else tensor.flatten(0, 1).index_select(0, self.places)

    def unpack(self, rows):
        """``(T, B, …)`` of ``(N, …)``."""
        if rows is None:
            return None
        whole = rows.new_zeros(self.steps * self.batch, *rows.shape[1:])
        return whole.index_copy_(0, self.places, rows).view(self.steps, self.batch, *rows.shape[1:])

    def sort(self, tensor):
        """``(B, …)`` with the sequences in the order of the rows."""
        return None if tensor is None else tensor.index_select(0, self.order)

    def unsort(self, tensor):
        """The reverse."""
        if tensor is None:
            return None
        return torch.empty_like(tensor).index_copy_(0, self.order, tensor)

    def final(self, states):
        """The states ``(B, H)`` after each sequence's last step, of all ``(B+N, H)``."""
        return states.index_select(0, self.batch + self.ends)

    def merge_grads(self, grad, grad_last):
        """Gradients of all states, ``(N, H)`` or None; None of those after the last step."""
        if grad_last is None:
            return self.pack(grad), None
        if grad is None:
            grad = grad_last.new_zeros(len(self.places), grad_last.size(1))
        else:
            grad = self.pack(grad)
        return grad.index_add_(0, self.ends, grad_last), None
