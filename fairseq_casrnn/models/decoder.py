"""Recurrent decoder with attention and input feeding."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from ..errors import UserError
from ..layers import RecurrentStack
from ..layers.dropout import dropout_mask
from ..layers.state import State, as_state, h_and_c
from ..recurrence import decoding
from ..recurrence.decoder import DecoderInputs, DecoderLayer, DecoderSteps, attend
from ..recurrence.inputs import LossSpec
from ..recurrence.products import linear
from .config import dropout_option
from .dropout import Dropout
from .encoder import expand_rows
from .head import UnquantizedLinear, VocabularyHead, uniform_linear


class StepsInPlace:
    """Compiled steps of the decoder, whose state changes in place.

    Copies of an ``incremental_state`` share them, so a search must not go on from two copies.

    Args:
        steps: before the first step.
    """

    def __init__(self, steps: DecoderSteps):
        self.steps, self.moves = steps, 0

    def go_on(self, moves: int) -> DecoderSteps:
        """The steps, to be moved on once more after ``moves`` steps and reorderings.

        Raises:
            UserError: they have been moved on from another copy of the state.
        """
        if moves != self.moves:
            raise UserError(CANNOT_BRANCH)
        self.moves += 1
        return self.steps

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise UserError(CANNOT_BRANCH)


CANNOT_BRANCH = (
    "this decoder's incremental state changes in place, so a search cannot continue from two "
    "copies of it; set the engine to eager, as with model.decoder.rnn.engine = 'eager'"
)


class Attention(nn.Module):
    """Attention of Luong et al. (2015): "general" score, tanh output projection, no biases.

    ``input_proj`` W_a is (C, H), ``output_proj`` W_o is (H, C+H) on [context; h].
    """

    def __init__(self, source_size: int, hidden_size: int):
        super().__init__()
        sizes = (hidden_size, source_size), (source_size + hidden_size, hidden_size)
        self.input_proj, self.output_proj = (
            uniform_linear(*size, bias=False, kind=UnquantizedLinear) for size in sizes
        )
        self.source_size = source_size

    def project(self, source: Tensor, engine: str | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values ``(B, S, H)`` of a source ``(S, B, C)``, computed on ``engine``.

        :mod:`..recurrence.decoder` defines them.
        """
        source = source.transpose(0, 1).contiguous()
        keys = linear(source, self.input_proj.weight.t(), engine=engine)
        weight = self.output_proj.weight[:, : self.source_size]
        values = linear(source, weight, engine=engine)
        return keys, values

    @property
    def weight_out(self) -> Tensor:
        """The part of ``output_proj`` that multiplies h, ``(H, H)``."""
        return self.output_proj.weight[:, self.source_size :]

    def forward(
        self, h: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Attention for all steps ``h`` (T, B, H) at once.

        Returns:
            Outputs ``(T, B, H)`` and weights ``(T, B, S)``.
        """
        h = h.transpose(0, 1)
        scores = torch.bmm(h, keys.transpose(1, 2))  # (B, T, S)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1), float("-inf"))
        alpha = torch.softmax(scores, dim=-1)
        out = torch.tanh(torch.bmm(alpha, values) + F.linear(h, self.weight_out))
        return out.transpose(0, 1), alpha.transpose(0, 1)


class RecurrentDecoder(VocabularyHead, FairseqIncrementalDecoder):
    """Target embeddings → recurrent stack → attention → vocabulary.

    Args:
        dictionary: target dictionary.
        embed_tokens: ``nn.Embedding`` of the target.
        rnn: one-directional stack; its input is the embedding and, with input feeding, the
            attention output of the previous step.
        encoder_size: C = D*H, of the encoder's outputs and final states.
        cfg: the options of the model. ``decoder_dropout_in`` is on the embeddings,
            ``decoder_dropout_out`` on the attention output and the input of the output layer.

    The initial state is the encoder's final state, matched layer by layer from the top. If the
    decoder is deeper, its lower layers start from the encoder's bottom layer.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        rnn: RecurrentStack,
        encoder_size: int,
        cfg: FairseqDataclass,
    ):
        super().__init__(dictionary)
        self.embed_tokens, self.rnn, self.input_feed = embed_tokens, rnn, not cfg.no_input_feed
        self.padding_idx = dictionary.pad()
        self.max_target_positions = int(cfg.max_target_positions or sys.maxsize)
        hidden = rnn.hidden_size
        name = "RecurrentDecoder"  # for --retain-dropout-modules
        self.dropout_in_module = Dropout(dropout_option(cfg, "decoder_dropout_in"), name)
        self.dropout_out_module = Dropout(dropout_option(cfg, "decoder_dropout_out"), name)
        self.attention = Attention(encoder_size, hidden)
        self.encoder_hidden_proj = self.encoder_cell_proj = None
        if encoder_size != hidden:
            self.encoder_hidden_proj = uniform_linear(encoder_size, hidden)
            if rnn.has_cell:
                self.encoder_cell_proj = uniform_linear(encoder_size, hidden)
        shared = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
        self.build_head(cfg, len(dictionary), cfg.decoder_out_embed_dim, shared)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: dict[str, dict[str, Any]] | None = None,
        loss_spec: LossSpec | None = None,
        **unused: Any,
    ) -> tuple[Tensor | tuple[Tensor, Tensor], dict[str, Any]]:
        """Logits ``(B, T, V)`` and ``{"attn": [(B, T, S)]}`` for ``prev_output_tokens`` ``(B, T)``.

        With ``incremental_state``, only the last token is read and T is 1. With ``loss_spec``, the
        loss replaces the logits, see :meth:`loss`.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return self.output_layer(x) if loss_spec is None else self.loss(x, loss_spec), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: dict[str, dict[str, Any]] | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As :meth:`forward`, without the output layer: ``(B, T, out_embed_dim)``."""
        if incremental_state is not None:
            x, alpha = self.one_step(prev_output_tokens[:, -1:], encoder_out, incremental_state)
        else:
            x, alpha = self.all_steps(prev_output_tokens, encoder_out)
        x = x.transpose(0, 1).contiguous()  # (B, T, H)
        if self.additional_fc is not None:
            x = self.dropout_out_module(self.additional_fc(x))
        # fairseq's criterion for guided alignment needs contiguous attention weights.
        return x, {"attn": [alpha.transpose(0, 1).contiguous()], "inner_states": None}

    def initial_state(self, encoder_out: dict[str, Any]) -> State:
        """The decoder's state before the first step, from the encoder's final states."""
        hidden = self.match_layers(encoder_out["encoder_hidden"])
        if self.encoder_hidden_proj is not None:
            hidden = self.encoder_hidden_proj(hidden)
        if not self.rnn.has_cell:
            return hidden
        cell = self.match_layers(encoder_out["encoder_cell"])
        return hidden, cell if self.encoder_cell_proj is None else self.encoder_cell_proj(cell)

    def match_layers(self, state: Tensor) -> Tensor:
        """The encoder's states ``(L', B, C)`` matched to the decoder's layers: ``(L, B, C)``."""
        missing = self.rnn.num_layers - len(state)
        if missing == 0:
            return state
        if missing < 0:
            return state[-missing:]
        # A list of indices would have to be copied to the GPU, which synchronises.
        return torch.cat([state[:1].expand(missing, -1, -1), state])

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings ``(T, B, E)`` of tokens ``(B, T)``."""
        return self.dropout_in_module(self.embed_tokens(tokens.t().contiguous()))

    def all_steps(self, tokens: Tensor, encoder_out: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Outputs ``(T, B, H)`` and attention ``(T, B, S)`` for all target positions."""
        encoder_out = expand_rows(encoder_out)
        embedded = self.embed(tokens)
        if not self.input_feed:
            h, _ = self.rnn(embedded, self.initial_state(encoder_out))
            keys, values = self.attention.project(encoder_out["encoder_out"], self.rnn.engine)
            out, alpha = self.attention(h, keys, values, encoder_out["encoder_padding_mask"])
            return self.dropout_out_module(out), alpha
        inputs = self.loop_inputs(embedded, encoder_out)
        between = (self.rnn.num_layers - 1, *embedded.shape[:2], self.rnn.hidden_size)
        rnn: Any
        rnn, drop = self.rnn, self.dropout_out_module
        inputs.drop_layers = self.dropout_mask(embedded, between, rnn.dropout, rnn.drops)
        inputs.drop_out = self.dropout_mask(embedded, between[1:], drop.p, self.drops_out)
        inputs.temperature = rnn.temperature if self.routes_softly else None
        return decoding.run(rnn.engine, inputs)

    def loop_inputs(self, embedded: Tensor, encoder_out: dict[str, Any]) -> DecoderInputs:
        """The inputs of the decoder loop over ``embedded`` (T, B, E).

        Without dropout, and with hard routing; :meth:`all_steps` changes that.
        """
        h0, c0 = h_and_c(self.initial_state(encoder_out))
        keys, values = self.attention.project(encoder_out["encoder_out"], self.rnn.engine)
        mask, weight_out = encoder_out["encoder_padding_mask"], self.attention.weight_out
        return DecoderInputs(self.layers(), embedded, h0, c0, keys, values, mask, weight_out)

    @property
    def drops_out(self) -> bool:
        """Whether the output has dropout: in training, or with fairseq's --retain-dropout."""
        return self.training or self.dropout_out_module.apply_during_inference

    @property
    def routes_softly(self) -> bool:
        """Whether the layers mix several cells: in training, or with ``soft_routing``."""
        mixed = bool(self.rnn.cells[0].num_cells)
        return mixed and bool(self.training or self.rnn.soft_routing)

    def layers(self) -> list[DecoderLayer]:
        """The stack's layers as inputs of the decoder loop."""
        layers = []
        for k, cell in enumerate(self.rnn.cells):
            w_ih, w_hh, bias, params = self.rnn.layer_parameters(k)
            attention = getattr(self.rnn, f"attention_l{k}", None)
            layers.append(DecoderLayer(cell, w_ih, w_hh, bias, params, attention))
        return layers

    @staticmethod
    def dropout_mask(like: Tensor, shape: tuple[int, ...], p: float, active: bool) -> Tensor | None:
        """A dropout mask of ``shape``, or None without dropout."""
        if p == 0 or not active or shape[0] == 0:
            return None
        return dropout_mask(like, shape, p)

    def one_step(
        self,
        tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict[str, dict[str, Any]],
    ) -> tuple[Tensor, Tensor]:
        """One target position, with the state kept in ``incremental_state``."""
        embedded = self.embed(tokens)
        cached = self.get_incremental_state(incremental_state, "state")
        if not cached:
            cached = self.initial_cache(embedded, encoder_out)
        if "steps" in cached:
            steps, moves = cached["steps"], cached["moves"]
            out, alpha = steps.go_on(moves).step(embedded[0])
            cached = {"steps": steps, "moves": moves + 1}
        else:
            out, alpha, cached = self.eager_step(embedded[0], cached)
        self.set_incremental_state(incremental_state, "state", cached)
        return out.unsqueeze(0), alpha.unsqueeze(0)

    def initial_cache(self, embedded: Tensor, encoder_out: dict[str, Any]) -> dict[str, Any]:
        """The cache of :meth:`one_step` before the first step: compiled steps, or tensors."""
        d, rows = self.loop_inputs(embedded, encoder_out), encoder_out["rows"]
        if rows is not None:
            d.h0 = d.h0.index_select(1, rows)
            d.c0 = None if d.c0 is None else d.c0.index_select(1, rows)
        if not (self.drops_out or self.rnn.drops or self.routes_softly):
            steps = decoding.steps(self.rnn.engine, d, rows, self.input_feed)
            if steps is not None:
                return {"steps": StepsInPlace(steps), "moves": 0}
        if rows is not None:
            d.keys, d.values = d.keys.index_select(0, rows), d.values.index_select(0, rows)
            d.mask = None if d.mask is None else d.mask.index_select(0, rows)
        feed = torch.zeros_like(d.h0[0]) if self.input_feed else None
        tensors = {"keys": d.keys, "values": d.values, "mask": d.mask, "feed": feed}
        return {**tensors, "hidden": d.h0, "cell": d.c0}

    def eager_step(
        self, x: Tensor, cached: dict[str, Any]
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """A step in PyTorch operations: output ``(B, H)``, weights ``(B, S)``, the new cache."""
        if self.input_feed:
            x = torch.cat([x, cached["feed"]], dim=-1)
        h, state = self.rnn.step(x, as_state(cached["hidden"], cached["cell"]))
        hidden, cell = h_and_c(state)
        keys, values, mask = cached["keys"], cached["values"], cached["mask"]
        out, alpha = attend(h, keys, values, mask, self.attention.weight_out)
        out = self.dropout_out_module(out)
        feed = out if self.input_feed else None
        return out, alpha, {**cached, "hidden": hidden, "cell": cell, "feed": feed}

    def reorder_incremental_state(
        self, incremental_state: dict[str, dict[str, Any]], new_order: Tensor
    ) -> None:
        """Reorder the cached state to the hypotheses ``new_order``."""
        cached = self.get_incremental_state(incremental_state, "state")
        if not cached:
            return
        if "steps" in cached:
            steps, moves = cached["steps"], cached["moves"]
            steps.go_on(moves).reorder(new_order)
            cached = {"steps": steps, "moves": moves + 1}
        else:
            batch_dim = {"hidden": 1, "cell": 1}
            cached = {
                name: part if part is None else part.index_select(batch_dim.get(name, 0), new_order)
                for name, part in cached.items()
            }
        self.set_incremental_state(incremental_state, "state", cached)

    def max_positions(self) -> int:
        """Longest target accepted."""
        return self.max_target_positions
