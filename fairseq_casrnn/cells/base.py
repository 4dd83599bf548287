"""The base class of all recurrent cells: a cell's shape and its step, differentiable and in place.

A cell describes ONE layer. It owns no parameters: they are passed to its methods. The recurrence
engines (:mod:`fairseq_casrnn.recurrence`) run it over time.

Notation: B batch, H hidden size, S cells of a mixture. A "block" is H consecutive columns.

Every step has the same outline. The pre-activations are ``gx = W x_t + b`` (``ih_blocks`` blocks,
for the whole sequence in one product) and ``gh = U h_{t-1}`` (``hh_blocks`` blocks). ``gh`` is
added to the first blocks of ``gx``, except its last ``num_separate_gates`` blocks, which the cell
gets separately (the GRU's candidate, where the reset gate multiplies U h and not h).
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsInt, TypeAlias, cast

import torch
from torch import Tensor

from ..errors import UserError

IfUsed: TypeAlias = Tensor | Any
"""A tensor, or None if the cell does not have it or does not read it.

The class attributes of :class:`Cell` tell which. Because of Any, a subclass may declare ``Tensor``
where it always gets one.
"""


def at_least_one(label: str, value: object, least: int = 1) -> int:
    """``value`` as an int.

    Raises:
        UserError: it is not a whole number, or is below ``least``; the message names ``label``.
    """
    if not isinstance(value, numbers.Real) or not float(value).is_integer() or value < least:
        raise UserError(f"{label} is {value!r}; it must be a whole number of at least {least}")
    return int(cast(SupportsInt, value))


FUNCTIONAL = {"functional": True}
"""Metadata of an option that changes what the same weights compute.

Training refuses to resume with another value of it.
"""


@dataclass
class NoOptions:
    """The options of cells that have none."""


CellGrads: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
"""What :meth:`Cell.backward_` returns: ``(dh_prev, dc_prev, d_lower_c, d_mixture)``."""


class Cell:
    """The computation of one layer: a subclass sets the class attributes and defines :meth:`step`.

    Autograd then computes the gradients. Optionally, :meth:`forward_` and :meth:`backward_`, the
    same step in place and its gradient, make the cell faster.

    Attributes:
        ih_blocks: blocks of ``weight_ih`` and of the bias.
        hh_blocks: blocks of ``weight_hh``.
        num_separate_gates: number of last blocks of U h that are not added to ``gx``.
        has_cell: whether the layer has a cell state c beside h.
        lower_cell: whether the step reads the cell state of the layer below, (B, H).
        num_cells: S, if the step reads mixture weights (B, S), which the layer computes
            (``RecurrentStack.mixture_weights``); otherwise 0.
        params: ``(name, rows)`` of the elementwise parameters, shape ``(rows, H)``, or ``(H,)``
            when rows is None.
        zero_params: names of those of ``params`` that start at 0, not at random.
        kernel: name of its kernels in C++ and Triton (its folder's ``kernel.h`` and ``triton.py``),
            or None. Not inherited, since a subclass may compute something else.
        bias_one_gates: blocks of the bias that start at 1 (the forget-like gates).
    """

    ih_blocks = 4
    hh_blocks = 4
    num_separate_gates = 0
    has_cell = True
    lower_cell = False
    num_cells = 0
    params: tuple[tuple[str, int | None], ...] = ()
    zero_params: tuple[str, ...] = ()
    kernel: str | None = None
    bias_one_gates: tuple[int, ...] = (1,)

    def __init_subclass__(cls) -> None:
        """Refuse versions of a step that belong to different cells; do not inherit ``kernel``.

        Raises:
            TypeError: one of ``step``, ``forward_`` and ``backward_`` is redefined but another one
                inherited; one of ``forward_`` and ``backward_`` is missing.
        """
        versions = ("step", "forward_", "backward_")
        own = [name for name in versions if name in vars(cls)]
        inherited = [name for name in versions if name not in own]
        if own and inherited and cls.is_fused():
            raise TypeError(
                f"{cls.__name__} defines {' and '.join(own)} but inherits "
                f"{' and '.join(inherited)}, which compute the base class's step: define "
                f"{'it' if len(inherited) == 1 else 'them'} as well, or derive from Cell"
            )
        missing = [name for name in versions[1:] if getattr(cls, name) is getattr(Cell, name)]
        if len(missing) == 1:
            raise TypeError(
                f"{cls.__name__} lacks {missing[0]}: define both forward_ and backward_, or neither"
            )
        if "kernel" not in vars(cls):
            cls.kernel = None

    @classmethod
    def is_fused(cls) -> bool:
        """Whether it has :meth:`forward_` and :meth:`backward_`; otherwise :meth:`step` runs."""
        return cls.forward_ is not Cell.forward_ and cls.backward_ is not Cell.backward_

    def step(
        self,
        gx: Tensor,
        gh: Tensor,
        h: Tensor,
        c: IfUsed,
        *,
        lower_c: IfUsed,
        mixture: IfUsed,
        params: tuple[Tensor, ...],
    ) -> tuple[Tensor, Tensor | None]:
        """One differentiable step in plain PyTorch: the specification of the cell.

        A subclass names the keyword arguments that it reads and takes the rest as ``**unused``.

        Args:
            gx: ``(B, ih_blocks*H)``, W x_t + b.
            gh: ``(B, hh_blocks*H)``, U h_{t-1}.
            h, c: ``(B, H)``, the state before the step (c is None where ``has_cell`` is False).
            lower_c: ``(B, H)``, c_t of the layer below, where ``lower_cell``; else None.
                Such a cell cannot be the bottom one.
            mixture: ``(B, S)``, weights, where ``num_cells``; else None.
            params: the elementwise parameters, in the order of ``self.params``.

        Returns:
            h_t and c_t, ``(B, H)`` each.
        """
        raise NotImplementedError

    def forward_(
        self,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: IfUsed,
        h: Tensor,
        c: IfUsed,
        *,
        candidate: IfUsed,
        lower_c: IfUsed,
        mixture: IfUsed,
        params: tuple[Tensor, ...],
    ) -> None:
        """The same step in place, written into h and c.

        ``gates`` holds gx with gh added, and may be overwritten with anything that
        :meth:`backward_` can use, such as the activated gates. ``candidate`` holds the blocks of gh
        that were not added, ``(B, num_separate_gates*H)``.
        """
        raise NotImplementedError

    def backward_(
        self,
        dh: Tensor,
        dc: IfUsed,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: IfUsed,
        c: IfUsed,
        *,
        candidate: IfUsed,
        lower_c: IfUsed,
        mixture: IfUsed,
        params: tuple[Tensor, ...],
        d_params: tuple[Tensor, ...],
    ) -> CellGrads:
        """The hand-written backward of :meth:`forward_`.

        ``gates`` becomes the gradient of the pre-activations, ``candidate`` that of its own blocks;
        ``dc`` may be overwritten; gradients of ``params`` are added to ``d_params`` here or in
        :meth:`param_grads`.

        Returns:
            ``(dh_prev, dc_prev, d_lower_c, d_mixture)``, each None if the cell has no such input;
            dh_prev excludes what comes through U.
        """
        raise NotImplementedError

    def param_grads(
        self,
        d_gates: Tensor,
        cs: IfUsed,
        *,
        lower_c: IfUsed,
        d_params: tuple[Tensor, ...],
    ) -> None:
        """Add gradients to ``d_params`` that can be summed over the whole sequence at once.

        ``d_gates`` is ``(T, B, ih_blocks*H)``; ``cs`` is ``(T+1, B, H)``, c_{t-1} at index t;
        ``lower_c`` is ``(T, B, H)``.
        """

    def kernel_rows(self, params: Sequence[Tensor], like: Tensor, size: int) -> Tensor | None:
        """The elementwise parameters as the kernels read them: ``(rows, H)``, or None.

        Args:
            params: as in :meth:`step`.
            like: a tensor of the dtype and device of the rows.
            size: H.
        """
        if len(params) < 2:
            return params[0].reshape(-1, size) if params else None
        return torch.cat([p.reshape(-1, size) for p in params])

    def kernel_param_grads(
        self, d_rows: IfUsed, rows: IfUsed, params: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """The gradients of ``params`` from those of :meth:`kernel_rows`, both ``(rows, H)``."""
        if not params:
            return ()
        size = d_rows.size(1)
        parts = d_rows.split([p.numel() // size for p in params])
        return tuple(part.view_as(p) for part, p in zip(parts, params, strict=True))


def dsigmoid_(out: Tensor, grad: Tensor) -> Tensor:
    """Overwrite ``out`` = σ(a) with the gradient of a."""
    result: Tensor = torch.ops.aten.sigmoid_backward.grad_input(grad, out, grad_input=out)
    return result


def dtanh_(out: Tensor, grad: Tensor) -> Tensor:
    """Overwrite ``out`` = tanh(a) with the gradient of a."""
    result: Tensor = torch.ops.aten.tanh_backward.grad_input(grad, out, grad_input=out)
    return result


def grad_through_output(dh: Tensor, dc: Tensor, o: Tensor, c: Tensor) -> Tensor:
    """Backward of h = o⊙tanh(c): adds to ``dc``; ``o`` becomes its pre-activation's gradient."""
    tanh_c = torch.tanh(c)
    dc.add_(torch.ops.aten.tanh_backward(dh * o, tanh_c))
    dsigmoid_(o, dh * tanh_c)
    return dc
