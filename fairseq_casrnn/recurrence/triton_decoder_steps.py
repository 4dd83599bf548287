"""The decoder's loop of engine ``triton`` step by step, for beam search."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import Decode
from .inputs import kept
from .triton_decoder_loop import Saved, decode, dense, gather_weights


class Steps:
    """As :class:`.attention_cpp.Steps`: one launch a step for all layers and the attention."""

    def __init__(self, d: Decode, source: Tensor | None, input_feed: bool = True):
        embed_dim, bottom = d.embedded.size(-1), d.layers[0]
        self.weight, self.bias = bottom.weight_ih[:, :embed_dim].t(), bottom.bias
        self.routing = None if bottom.attention is None else bottom.attention[:, :embed_dim]
        self.weights, self.names = gather_weights(d.layers, embed_dim)
        if not input_feed:
            self.weights = self.weights._replace(w_ih0=None, attention0=None)
        self.d, self.source = dense(d), source
        # Before and after a step: h of all layers, what the bottom one is fed; and the states.
        depth, batch, size = d.h0.shape
        self.hs = d.h0.new_zeros(2, depth + 1, batch, size)
        self.hs[0, :depth] = d.h0
        self.states = self.hs
        if d.c0 is not None or kept(d.h0.dtype) != d.h0.dtype:
            self.states = torch.zeros_like(self.hs, dtype=kept(d.h0.dtype))
            self.states[0, :depth] = d.h0 if d.c0 is None else d.c0
        self.stepped = False

    def step(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Attention output ``(B, H)`` and weights ``(B, S)`` after embeddings ``(B, E)``."""
        if self.stepped:
            self.reorder(torch.arange(self.hs.size(2), device=self.hs.device))
        self.stepped = True
        depth, batch = self.hs.size(1) - 1, self.hs.size(2)
        gx = torch.addmm(self.bias, embedded, self.weight).unsqueeze(0)
        routed = None
        if self.routing is not None:
            routed = F.linear(embedded, self.routing).unsqueeze(0)
        alphas = self.states.new_empty(1, batch, self.d.keys.size(1))
        out = self.hs[1, depth]
        nothing = dict.fromkeys(Saved._fields)
        saved = Saved(
            **nothing | {"hs": self.hs, "states": self.states, "fed": out, "alphas": alphas}
        )
        feed = self.hs[0, depth]
        decode(
            self.d, self.weights, self.names, saved, gx, routed,
            batch, (depth + 1) * batch, feed, self.source,
        )  # fmt: skip
        return out, alphas[0].to(out.dtype)

    def reorder(self, order: Tensor) -> None:
        """The next step's rows continue the rows ``order`` (B',) of the last one."""
        made = int(self.stepped)
        same = self.states is self.hs
        self.hs = continued(self.hs, made, order)
        self.states = self.hs if same else continued(self.states, made, order)
        self.source = order.clone() if self.source is None else self.source.index_select(0, order)
        self.stepped = False


def continued(states: Tensor, made: int, order: Tensor) -> Tensor:
    """A buffer for a step that goes on from the rows ``order`` of ``states[made]``."""
    buffer = states.new_empty(2, states.size(1), order.numel(), states.size(3))
    torch.index_select(states[made], 1, order, out=buffer[0])
    return buffer
