"""The elementwise parts of a sentence-state LSTM's step, in C++ where the extension can run them.

Torch's operations pass over the gates of all words a dozen times in either direction; here they are
passed over once. Shapes and names as in :class:`fairseq_casrnn.layers.SentenceStateLSTM`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import autocast, cpp, eager, engine_name


def is_compiled(engine: str | None, x: Tensor) -> bool:
    """Whether ``engine`` (None: the default) is ``cpp``, and runs on what ``x`` is."""
    return (
        engine_name(engine, x.device.type) == "cpp"
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and not autocast("cpu")
    )


def mix_words(gates, gx, gg, c, nodes, lengths) -> tuple[Tensor, Tensor]:
    """New h and c ``(T, B, H)`` of the words, zero at padding.

    Args:
        gates: ``(T, B, G*H)``, W_hh ξ; is overwritten.
        gx, gg: ``(T, B, G*H)``, W_ih x + b, and ``(B, G*H)``, W_gh g.
        c, nodes: ``(T, B, H)`` and ``(B, K, H)``, the cells of words and sentence nodes.
        lengths: ``(B,)``, int64.
    """
    return _Mix.apply(*(x.contiguous() for x in (gates, gx, gg, c, nodes, lengths)))


def gather_words(gates, gg, c, lengths) -> tuple[Tensor, Tensor]:
    """Σᵢ eᵢ⊙cᵢ and Σᵢ eᵢ over the words, ``(B, K, H)`` each, with e = exp(σ(gates + gg) − 1).

    Args:
        gates: ``(T, B, K*H)``, U_f h; is overwritten.
        gg: ``(B, K*H)``, W_f g + b_f.
        c: ``(T, B, H)``.
        lengths: ``(B,)``, int64.
    """
    return _Gather.apply(*(x.contiguous() for x in (gates, gg, c, lengths)))


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, gx, gg, c, nodes, lengths):
        # Torch need not know that gates change: they are a product's result, which nobody keeps.
        h, new_c = cpp.extension()[0].mix_words(gates.detach(), gx, gg, c, nodes, lengths)
        ctx.save_for_backward(gates, c, nodes, lengths, new_c)
        return h, new_c

    @staticmethod
    def backward(ctx, grad_h, grad_c):
        eager.refuse_create_graph("cpp")
        d_gates, d_gg, d_c, d_nodes = cpp.extension()[0].mix_words_backward(
            *ctx.saved_tensors, grad_h.contiguous(), grad_c.contiguous()
        )
        return d_gates, d_gates, d_gg, d_c, d_nodes, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, gg, c, lengths):
        ctx.save_for_backward(gates, c, lengths)
        return cpp.extension()[0].gather_words(gates.detach(), gg, c, lengths)

    @staticmethod
    def backward(ctx, grad_cells, grad_shares):
        eager.refuse_create_graph("cpp")
        grads = cpp.extension()[0].gather_words_backward(
            *ctx.saved_tensors, grad_cells.contiguous(), grad_shares.contiguous()
        )
        return *grads, None
