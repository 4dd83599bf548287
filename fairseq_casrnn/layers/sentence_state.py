"""Sentence-state LSTM: in each step, all words and the sentence exchange information at once."""

from __future__ import annotations

import math
from typing import NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import checkpoint

from ..cells.base import at_least_one
from ..recurrence import check_name, choose
from ..recurrence.products import linear
from ..recurrence.sentence_state import SLSTMOptions, SLSTMParameters, WordOps
from ..recurrence.shared_weight import SharedWeightLinear
from .sequences import (
    Lengths,
    check_input,
    check_lengths,
    from_time_first,
    run_packed,
    to_time_first,
    without_view,
)


class SentenceStateLSTM(nn.Module):
    """Sentence-state LSTM (Zhang, Liu and Song 2018, eq. 2-3).

    Every word i has a state (hᵢ, cᵢ), every sentence node a state (g, c_g). Each step computes all
    states from those of the previous step. The gates of a word are σ(W_hh ξᵢ + W_ih xᵢ + W_gh g +
    b) with ξᵢ = [h_{i−w}, …, h_{i+w}]; u has tanh, and a softmax normalises all gates but o:

        cᵢ = i⊙u + Σₖ lₖ⊙c_{i−k} + f⊙cᵢ + Σₖ rₖ⊙c_{i+k} + Σⱼ sⱼ⊙c_gⱼ        hᵢ = o⊙tanh(cᵢ)

    For a sentence node, h̄ is the mean over the words, and the softmax is over the words and all
    nodes:

        f̂ᵢ = σ(W_f g + U_f hᵢ + b_f)   f̂_gⱼ = σ(W_g gⱼ + U_g h̄ + b_g)   o = σ(W_o g + U_o h̄ + b_o)
        c_g = Σⱼ f_gⱼ⊙c_gⱼ + Σᵢ fᵢ⊙cᵢ                                g = o⊙tanh(c_g)

    h⁰ and g⁰ are the learned vector ``h0``; the cells start at zero. Outside of the sentence, also
    at padding, h and c are zero.

    Args:
        input_size, hidden_size: I, H.
        num_steps: number of steps; each updates all states.
        window: w, the number of words on either side that a word reads.
        num_sentence_nodes: K; with 0, words exchange information with their neighbours only (first
            row of the paper's Table 2).
        recompute: keep only the states of each step and recompute the gates in the backward: a
            fraction of the memory for a third more time.
        engine: ``cpp`` and ``triton`` do a step's elementwise work in one compiled loop or GPU
            kernel and skip padding; other engines use PyTorch operations. None for the default of
            :mod:`fairseq_casrnn.recurrence`.
        batch_first: input and output are ``(B, T, …)``.
        device, dtype: of the parameters.

    Parameters, with G = 2w + K + 4 gates **i l_w…l_1 f r_1…r_w s_1…s_K o u**: ``weight_hh``
    (G·H, (2w+1)·H), ``weight_ih`` (G·H, I), ``weight_gh`` (G·H, K·H), ``bias`` (G·H); for the
    nodes, one after another, gates **g f o**: ``weight_sg`` (K·3H, H) on the nodes' states,
    ``weight_sh`` (K·3H, H) on (h̄, hᵢ, h̄), ``bias_s`` (K·3H), all None if K is 0; ``h0`` (H).

    With ``num_steps=1``, g does not depend on the words, and DistributedDataParallel fails because
    some weights have no gradient (with fairseq, use ``--ddp-backend legacy_ddp``).

    Raises:
        UserError: a size below 1, or an unknown engine.
    """

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias: nn.Parameter
    h0: nn.Parameter
    weight_gh: nn.Parameter | None
    weight_sg: nn.Parameter | None
    weight_sh: nn.Parameter | None
    bias_s: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_steps: int,
        window: int = 1,
        num_sentence_nodes: int = 1,
        recompute: bool = False,
        engine: str | None = None,
        *,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.input_size = at_least_one("input_size", input_size)
        self.hidden_size = at_least_one("hidden_size", hidden_size)
        self.num_steps = at_least_one("num_steps", num_steps)
        self.window = at_least_one("window", window)
        self.num_sentence_nodes = at_least_one("num_sentence_nodes", num_sentence_nodes, 0)
        self.recompute, self.engine, self.batch_first = recompute, engine, bool(batch_first)
        if engine is not None:
            check_name(engine)
        self.output_size = self.hidden_size
        self.node_size = self.num_sentence_nodes * self.hidden_size
        size, nodes = self.hidden_size, self.num_sentence_nodes
        rows = (2 * self.window + nodes + 4) * size
        shapes = {
            "weight_hh": (rows, (2 * self.window + 1) * size),
            "weight_ih": (rows, self.input_size),
            "bias": (rows,),
        }
        node_shapes = {
            "weight_gh": (rows, nodes * size),
            "weight_sg": (nodes * 3 * size, size),
            "weight_sh": (nodes * 3 * size, size),
            "bias_s": (nodes * 3 * size,),
        }
        for name, shape in {**shapes, **node_shapes, "h0": (size,)}.items():
            # None without nodes: data-parallel training needs a gradient of every parameter.
            parameter = None
            if nodes or name not in node_shapes:
                parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, parameter)
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
            forget = 1 + self.window  # the gates i, l_w…l_1 come before f
            self.bias[forget * size : (forget + 1) * size] = 1.0
            if self.bias_s is not None:
                self.bias_s.view(-1, 3, size)[:, 0] = 1.0

    @overload
    def forward(self, x: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(self, x: PackedSequence, lengths: None = None) -> tuple[PackedSequence, Tensor]: ...
    def forward(
        self, x: Tensor | PackedSequence, lengths: Lengths = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run all steps over a batch.

        Args:
            x: ``(T, B, input_size)``, ``(B, T, input_size)`` with ``batch_first``, a
                PackedSequence, or a single sentence ``(T, input_size)``.
            lengths: ``(B,)`` in any order, or None when nothing is padding or x is packed.

        With a single sentence, the results have no dimension B.

        Returns:
            The words' states, ``(T, B, H)``, or ``(B, T, H)`` with ``batch_first``, zero at
            padding, or a PackedSequence if x is one; and the sentence nodes' states, ``(B, K*H)``.

        Raises:
            UserError: shapes that do not fit.
        """
        dtype = self.weight_ih.dtype
        if isinstance(x, PackedSequence):
            return run_packed(self._forward, x, lengths, self.input_size, dtype)
        check_input(x, self.input_size, dtype, self.batch_first)
        words, g = self._forward(to_time_first(x, self.batch_first), lengths)
        g = g.squeeze(0) if x.dim() == 2 else g
        return from_time_first(words, x, self.batch_first), without_view(g)

    def _forward(self, x: Tensor, unchecked: Lengths) -> tuple[Tensor, Tensor]:
        """:meth:`forward` for x ``(T, B, input_size)``."""
        steps, batch, _ = x.shape
        lengths = check_lengths(unchecked, steps, batch, x.device)
        params = SLSTMParameters(*(getattr(self, name) for name in SLSTMParameters._fields))
        chosen = choose(
            self.engine,
            x.device.type,
            lambda engine: engine.supports_sentence_state(x, lengths, params),
        )
        if chosen.has_sentence_state:
            sizes = self.hidden_size, self.window, self.num_sentence_nodes, self.num_steps
            return chosen.sentence_state(SLSTMOptions(*sizes, self.recompute), x, lengths, params)
        words, engine = chosen.word_ops(x, lengths), chosen.name
        # Once for all steps. words.rows zeroes padding: NaN there must not reach the gradient.
        gx = linear(words.rows(x), self.weight_ih, self.bias, engine)
        h0 = self.h0.to(gx.dtype)
        h, g = words.expand_to_words(h0), h0.expand(batch, self.num_sentence_nodes, -1)
        state = _State(h, torch.zeros_like(h), g, torch.zeros_like(g))
        weights = _Weights(self, engine)
        for _ in range(self.num_steps):
            if self.recompute and torch.is_grad_enabled():
                state = checkpoint(self._step, words, weights, gx, state, use_reentrant=False)
            else:
                state = self._step(words, weights, gx, state)
        return words.to_padded(state.h), words.nodes(state.g).flatten(1)

    def _step(self, words: WordOps, weights: _Weights, gx: Tensor, state: _State) -> _State:
        """One step of all states.

        Args:
            words: the operations that depend on lengths.
            weights: the layer's.
            gx: W_ih x + b of each word, (…, G*H).
            state: the states after the previous step.
        """
        # Eq. 2.
        around, total = words.window_concat(state.h, self.window)
        gates = weights.around(around)
        if self.num_sentence_nodes:
            shared = weights.nodes(state.g.flatten(1))
        else:
            shared = gx.new_zeros(len(state.g), len(self.bias))
        new_h, new_c = words.mix(gates, gx, shared, state.c, state.c_g)
        return _State(new_h, new_c, *self._nodes(words, weights, state, total / words.lengths))

    def _nodes(
        self, words: WordOps, weights: _Weights, state: _State, mean: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Eq. 3: g and c_g of all K nodes; ``mean`` (B, H) is the mean of the words' h."""
        h, c, g, c_g = state
        nodes = self.num_sentence_nodes
        if self.bias_s is None:
            return g, c_g

        def split(x: Tensor, *parts: int) -> Tensor:  # (…, K*parts*H)
            blocks: Tensor = x.unflatten(-1, (nodes, *parts, self.hidden_size))
            return blocks

        b_g, b_f, b_o = split(self.bias_s, 3).unbind(1)  # (K, H) each
        mean_g, mean_o = split(weights.mean(mean), 2).unbind(2)
        own_gates = torch.stack([linear_k(g[:, k]) for k, linear_k in enumerate(weights.own)], 1)
        own_f, own_o = own_gates.chunk(2, dim=-1)
        # Node k's forget gate on node j's cell: (B, k, j, H).
        f_nodes = split(weights.each_other(g)).transpose(1, 2) + (mean_g + b_g).unsqueeze(2)
        o = (own_o + mean_o + b_o).sigmoid()
        # Softmax over sigmoids: exp(σ − 1), whose factor 1/e cancels.
        f_nodes = (f_nodes.sigmoid() - 1).exp()
        cells, shares = words.gather(weights.word(h), (own_f + b_f).flatten(1), c)
        new_c_g = (cells + (f_nodes * c_g.unsqueeze(1)).sum(2)) / (shares + f_nodes.sum(2))
        return o * new_c_g.tanh(), new_c_g

    def extra_repr(self) -> str:
        """The sizes and non-default options, for ``repr``."""
        changed = [name for name in ("recompute", "batch_first") if getattr(self, name)]
        return ", ".join(
            [
                f"{self.input_size}, {self.hidden_size}, num_steps={self.num_steps}",
                f"window={self.window}, num_sentence_nodes={self.num_sentence_nodes}",
                *(f"{name}=True" for name in changed),
            ]
        )


class _State(NamedTuple):
    """h and c of all words ``(…, H)``, g and c_g of all sentence nodes ``(B, K, H)``."""

    h: Tensor
    c: Tensor
    g: Tensor
    c_g: Tensor


class _Weights:
    """The linear maps of a step; their weights are packed once for all steps.

    Without sentence nodes there is only ``around``.

    Attributes:
        around: W_hh ξ, for the words' gates.
        nodes: W_gh g, for the words' gates.
        each_other: W_g of every node, applied to any node's state: (…, K*H).
        own: W_f and W_o of each node, applied to its own state: (…, 2*H).
        word: U_f of every node, applied to a word's state: (…, K*H).
        mean: U_g and U_o of every node, applied to the words' mean: (…, K*2*H).
    """

    def __init__(self, layer: SentenceStateLSTM, engine: str | None):
        size, nodes = layer.hidden_size, layer.num_sentence_nodes

        def shared_linear(weight: Tensor) -> SharedWeightLinear:
            return SharedWeightLinear(weight, layer.num_steps, engine)

        self.around = shared_linear(layer.weight_hh)
        if layer.weight_gh is None or layer.weight_sg is None or layer.weight_sh is None:
            return
        self.nodes = shared_linear(layer.weight_gh)
        node_weights = layer.weight_sg.view(nodes, 3, size, size)  # g, f, o
        self.each_other = shared_linear(node_weights[:, 0].flatten(0, 1))
        self.own = [shared_linear(weights.flatten(0, 1)) for weights in node_weights[:, 1:]]
        word_weights = layer.weight_sh.view(nodes, 3, size, size)
        self.word = shared_linear(word_weights[:, 1].flatten(0, 1))
        self.mean = shared_linear(word_weights[:, ::2].flatten(0, 2))
