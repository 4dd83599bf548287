"""Sentence-state LSTM: all words and the sentence exchange information at once, step by step."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import checkpoint

from ..cells.base import at_least_one
from ..errors import UserError
from ..recurrence import engine_name
from ..recurrence.products import linear
from ..recurrence.sentence_state import gather_words, is_compiled, mix_words
from .sequences import check_lengths, padding_mask, run_packed


class SentenceStateLSTM(nn.Module):
    """Sentence-state LSTM (Zhang, Liu and Song 2018, eq. 2-3).

    Every word i has a state (hᵢ, cᵢ), every sentence node a state (g, c_g); each step computes all
    of them from those of the step before. With ξᵢ = [h_{i−w}, …, h_{i+w}] and all gates
    σ(W_hh ξᵢ + W_ih xᵢ + W_gh g + b), softmax over all gates but o, and u with tanh:

        cᵢ = i⊙u + Σₖ lₖ⊙c_{i−k} + f⊙cᵢ + Σₖ rₖ⊙c_{i+k} + Σⱼ sⱼ⊙c_gⱼ        hᵢ = o⊙tanh(cᵢ)

    and for a sentence node, h̄ the mean over the words, softmax over the words and all nodes:

        f̂ᵢ = σ(W_f g + U_f hᵢ + b_f)   f̂_gⱼ = σ(W_g gⱼ + U_g h̄ + b_g)   o = σ(W_o g + U_o h̄ + b_o)
        c_g = Σⱼ f_gⱼ⊙c_gⱼ + Σᵢ fᵢ⊙cᵢ                                g = o⊙tanh(c_g)

    h⁰ and g⁰ are the learned vector ``h0``, the cells start at zero. Beyond the sentence, and so at
    padding, h and c are zero.

    Args:
        input_size, hidden_size: I, H.
        num_steps: how often the states are renewed.
        window: w, how many words to either side a word reads.
        num_sentence_nodes: K; with 0, words hear of the sentence through their neighbours alone
            (first row of the paper's Table 2).
        recompute: keep only the states of each step and compute the gates again in the backward:
            a fraction of the memory for a third more time.
        engine: ``cpp`` passes over the gates in compiled loops, any other in torch's operations;
            None for the default of :mod:`fairseq_casrnn.recurrence`.

    Parameters, with G = 2w + K + 4 gates **i l_w…l_1 f r_1…r_w s_1…s_K o u**: ``weight_hh``
    (G·H, (2w+1)·H), ``weight_ih`` (G·H, I), ``weight_gh`` (G·H, K·H), ``bias`` (G·H); for the
    nodes, one after another, blocks **g f o**: ``weight_sg`` (K·3H, H) on the nodes' states,
    ``weight_sh`` (K·3H, H) on (h̄, hᵢ, h̄), ``bias_s`` (K·3H), all None if K is 0; ``h0`` (H).
    After a single step g does not depend on the words: weights that no output depends on make
    ``torch``'s DistributedDataParallel fail (fairseq: ``--ddp-backend legacy_ddp``).

    Raises:
        UserError: a size below 1, or an unknown engine.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_steps: int,
        window: int = 1,
        num_sentence_nodes: int = 1,
        recompute: bool = False,
        engine: str | None = None,
    ):
        super().__init__()
        self.input_size = at_least_one("input_size", input_size)
        self.hidden_size = at_least_one("hidden_size", hidden_size)
        self.num_steps = at_least_one("num_steps", num_steps)
        self.window = at_least_one("window", window)
        self.num_sentence_nodes = at_least_one("num_sentence_nodes", num_sentence_nodes, 0)
        self.recompute, self.engine = recompute, engine
        if engine is not None:
            engine_name(engine)
        self.output_size = self.hidden_size
        self.node_size = self.num_sentence_nodes * self.hidden_size
        size, nodes = self.hidden_size, self.num_sentence_nodes
        rows = (2 * self.window + nodes + 4) * size
        self.weight_hh = nn.Parameter(torch.empty(rows, (2 * self.window + 1) * size))
        self.weight_ih = nn.Parameter(torch.empty(rows, self.input_size))
        self.bias = nn.Parameter(torch.empty(rows))
        of_nodes = {
            "weight_gh": (rows, nodes * size),
            "weight_sg": (nodes * 3 * size, size),
            "weight_sh": (nodes * 3 * size, size),
            "bias_s": (nodes * 3 * size,),
        }
        for name, shape in of_nodes.items():
            # Without nodes there are none: data-parallel training waits for every gradient.
            self.register_parameter(name, nn.Parameter(torch.empty(shape)) if nodes else None)
        self.h0 = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self, bound: float | None = None) -> None:
        """Weights and ``h0`` uniform in ±bound (1/√H unless given); biases 0, of f gates 1."""
        bound = 1 / math.sqrt(self.hidden_size) if bound is None else bound
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.startswith("bias"):
                    parameter.zero_()
                else:
                    parameter.uniform_(-bound, bound)
            size = self.hidden_size
            forget = 1 + self.window  # behind i, l_w…l_1
            self.bias[forget * size : (forget + 1) * size] = 1.0
            if self.bias_s is not None:
                self.bias_s.view(-1, 3, size)[:, 0] = 1.0

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run all steps over a batch.

        Args:
            x: ``(T, B, input_size)``, or a PackedSequence.
            lengths: ``(B,)`` in any order, or None when nothing is padding or x is packed.

        Returns:
            The words' states ``(T, B, H)``, zero at padding, or a PackedSequence if x is one, and
            the sentence nodes' ``(B, K*H)``.

        Raises:
            UserError: shapes that do not fit.
        """
        if isinstance(x, PackedSequence):
            return run_packed(self.forward, x, lengths)
        shape = tuple(x.shape)
        if len(shape) != 3 or shape[-1] != self.input_size or 0 in shape:
            raise UserError(
                f"input has shape {shape}; expected (time, batch, {self.input_size}), not empty"
            )
        steps, batch, _ = shape
        given = check_lengths(lengths, steps, batch, x.device)
        if given is None:
            lengths = torch.full((batch,), steps, device=x.device)
        else:
            lengths = given
            # Not even NaN there may reach a weight's gradient.
            x = x.masked_fill(padding_mask(lengths, steps).unsqueeze(-1), 0.0)
        gx = linear(x, self.weight_ih, self.bias)  # (T, B, G*H), for all steps at once
        h = self.h0.to(gx.dtype).expand(steps, batch, -1)
        if given is not None:
            h = h.masked_fill(padding_mask(lengths, steps).unsqueeze(-1), 0.0)
        g = self.h0.to(gx.dtype).expand(batch, self.num_sentence_nodes, -1)
        state = (h, torch.zeros_like(h), g, torch.zeros_like(g))
        for _ in range(self.num_steps):
            if self.recompute and torch.is_grad_enabled():
                state = checkpoint(self.step, gx, lengths, *state, use_reentrant=False)
            else:
                state = self.step(gx, lengths, *state)
        return state[0], state[2].flatten(1)

    def step(self, gx: Tensor, lengths: Tensor, h: Tensor, c: Tensor, g: Tensor, c_g: Tensor):
        """All states of one step from those of the step before.

        Args:
            gx: ``(T, B, G*H)``, W_ih x + b.
            lengths: ``(B,)``.
            h, c: ``(T, B, H)``, zero at padding.
            g, c_g: ``(B, K, H)``.

        Returns:
            The new h, c, g, c_g.
        """
        return *self._words(gx, lengths, h, c, g, c_g), *self._nodes(lengths, h, c, g, c_g)

    def _words(self, gx, lengths, h, c, g, c_g):
        """Eq. 2."""
        size, nodes, span = self.hidden_size, self.num_sentence_nodes, 2 * self.window + 1
        gates = linear(torch.cat(self._around(h), -1), self.weight_hh)
        # (B, G*H) for every word.
        shared = linear(g.flatten(1), self.weight_gh) if nodes else gx.new_zeros(gx.shape[1:])
        if is_compiled(self.engine, gx):
            return mix_words(gates, gx, shared, c, c_g, lengths)
        mixing, o, u = (gx + gates + shared).split([(1 + span + nodes) * size, size, size], dim=-1)
        # σ first and softmax after: the exponents lie in (0, 1), so nothing can overflow.
        weights = mixing.sigmoid().exp().unflatten(-1, (-1, size))  # (T, B, 1+span+K, H)
        cells = [u.tanh(), *self._around(c)]
        total = sum(weights[..., k, :] * cell for k, cell in enumerate(cells))
        total = total + (weights[..., 1 + span :, :] * c_g).sum(-2)
        padding = padding_mask(lengths, len(gx)).unsqueeze(-1)
        new_c = (total / weights.sum(-2)).masked_fill(padding, 0.0)
        return (o.sigmoid() * new_c.tanh()).masked_fill(padding, 0.0), new_c

    def _around(self, states: Tensor) -> list[Tensor]:
        """``states`` (T, B, H) of the words i−w, …, i+w, zero beyond the sentence."""
        padded = F.pad(states, (0, 0, 0, 0, self.window, self.window))
        return [padded[k : k + states.size(0)] for k in range(2 * self.window + 1)]

    def _nodes(self, lengths, h, c, g, c_g):
        """Eq. 3, for all K nodes."""
        size, nodes = self.hidden_size, self.num_sentence_nodes
        if not nodes:
            return g, c_g
        w_g, w_f, w_o = self.weight_sg.view(nodes, 3, size, size).unbind(1)  # (K, H, H) each
        u_g, u_f, u_o = self.weight_sh.view(nodes, 3, size, size).unbind(1)
        b_g, b_f, b_o = self.bias_s.view(nodes, 3, size).unbind(1)  # (K, H) each
        mean = h.sum(0) / lengths.unsqueeze(1)  # (B, H)

        def apart(x, weight):  # every node's own weight on a common input: (…, K*H)
            return linear(x, weight.flatten(0, 1))

        def own(weight):  # every node's own weight on its own state: (B, K, H)
            return torch.einsum("bki,khi->bkh", g, weight)

        def split(x):
            return x.unflatten(-1, (nodes, size))

        # Of node k for node j: (B, k, j, H).
        f_nodes = torch.einsum("bji,khi->bkjh", g, w_g) + (split(apart(mean, u_g)) + b_g).unsqueeze(
            2
        )
        o = (own(w_o) + split(apart(mean, u_o)) + b_o).sigmoid()
        # Shares are exp(σ − 1): the factor 1/e is common to all.
        f_nodes = (f_nodes.sigmoid() - 1).exp()
        f_words, shared = apart(h, u_f), own(w_f) + b_f  # (T, B, K*H), (B, K, H)
        if is_compiled(self.engine, h):
            cells, shares = gather_words(f_words, shared.flatten(1), c, lengths)
        else:
            f_words = ((split(f_words) + shared).sigmoid() - 1).exp()
            f_words = f_words.masked_fill(padding_mask(lengths, len(h))[..., None, None], 0.0)
            cells, shares = (f_words * c.unsqueeze(2)).sum(0), f_words.sum(0)
        new_c_g = (cells + (f_nodes * c_g.unsqueeze(1)).sum(2)) / (shares + f_nodes.sum(2))
        return o * new_c_g.tanh(), new_c_g

    def extra_repr(self) -> str:
        """The sizes, for ``repr``."""
        return (
            f"{self.input_size}, {self.hidden_size}, num_steps={self.num_steps}, "
            f"window={self.window}, num_sentence_nodes={self.num_sentence_nodes}"
        )
