"""The decoder's loop of engine ``triton`` step by step, for beam search."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..decoder import DecoderInputs
from ..inputs import accumulation_dtype
from .decoder_loop import NOT_KEPT, Saved, dense, gather_weights, prepare, start
from .decoder_plan import Tiling


class TritonDecoderSteps:
    """Like :class:`.CppDecoderSteps`, with one launch per step for all layers and the attention.

    Launches dominate the time of a step, so arguments that are the same at every step are prepared
    once, and h and c are reordered in one operation if they have the same dtype.
    """

    def __init__(self, d: DecoderInputs, source: Tensor | None, input_feed: bool = True):
        embed_dim, bottom = d.embedded.size(-1), d.layers[0]
        self.weight, self.bias = bottom.weight_ih[:, :embed_dim].t(), bottom.bias
        self.routing = None if bottom.attention is None else bottom.attention[:, :embed_dim]
        weights = gather_weights(d.layers, embed_dim)
        if not input_feed:
            weights = weights._replace(bottom=weights.bottom._replace(w_ih=None, attention=None))
        self.weights = weights
        self.d, self.source = dense(d), source
        # The buffer has h of all layers and the input feeding, before and after a step, and c if it
        # has the same dtype. Otherwise ``wide`` has c, or h in the accumulation dtype if needed.
        depth, batch, size = d.h0.shape
        self.planes = depth + 1
        wide = accumulation_dtype(d.h0.dtype)
        in_one_buffer = d.c0 is not None and wide == d.h0.dtype
        separate = not in_one_buffer and (d.c0 is not None or wide != d.h0.dtype)
        self.buffer = d.h0.new_zeros(2, self.planes * (1 + in_one_buffer), batch, size)
        self.wide = d.h0.new_zeros(2, self.planes, batch, size, dtype=wide) if separate else None
        hs, states = self.views()
        hs[0, :depth] = d.h0
        if states is not hs:
            states[0, :depth] = d.h0 if d.c0 is None else d.c0
        self.stepped = False
        self.tile_plan: Tiling | None = None
        self.prepared: dict[str, Any] = {}
        self.rows: int | None = None  # batch size of ``prepared``

    def views(self) -> tuple[Tensor, Tensor]:
        """Views ``(2, L + 1, B, H)`` of h and of c, or of h again for cells without c."""
        hs = self.buffer[:, : self.planes]
        if self.wide is not None:
            return hs, self.wide
        return hs, self.buffer[:, self.planes :] if self.buffer.size(1) > self.planes else hs

    def step(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """One step: attention output ``(B, H)`` and weights ``(B, S)``, given embeddings (B, E)."""
        batch = self.buffer.size(2)
        if self.stepped:
            self.reorder(torch.arange(batch, device=self.buffer.device))
        self.stepped = True
        if self.tile_plan is None or self.rows != batch:
            hop = self.buffer.size(1) * batch
            self.tile_plan, self.prepared = prepare(self.d, self.weights, batch, batch, hop)
            self.rows = batch
        hs, states = self.views()
        out, feed = hs[1, -1], hs[0, -1]
        alphas = states.new_empty(1, batch, self.d.keys.size(1))
        changing = {
            "saved": Saved(NOT_KEPT, NOT_KEPT, hs, states, None, None, fed=out, alphas=alphas),
            "feed": feed,
            "gx": torch.addmm(self.bias, embedded, self.weight),
            "routed": None if self.routing is None else F.linear(embedded, self.routing),
            "source": self.source,
        }
        start(self.tile_plan, self.prepared | changing, 1)
        return out, alphas[0].to(out.dtype)

    def reorder(self, order: Tensor) -> None:
        """Row i of the next step continues row ``order[i]`` of the last one; order is (B',)."""
        current = int(self.stepped)
        self.buffer = reordered(self.buffer, current, order)
        self.wide = None if self.wide is None else reordered(self.wide, current, order)
        self.source = order.clone() if self.source is None else self.source.index_select(0, order)
        self.stepped = False


def reordered(states: Tensor, current: int, order: Tensor) -> Tensor:
    """A buffer for the next step, which starts from the rows ``order`` of ``states[current]``."""
    buffer = states.new_empty(2, states.size(1), order.numel(), states.size(3))
    torch.index_select(states[current], 1, order, out=buffer[0])
    return buffer
