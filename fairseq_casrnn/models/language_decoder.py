"""Recurrent decoder of a language model, and the state that it carries from batch to batch."""

from __future__ import annotations

import sys
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, FairseqIncrementalDecoder
from torch import Tensor, nn

from ..errors import UserError
from ..layers import RecurrentStack
from ..layers.dropout import dropout_mask
from ..layers.state import State, as_state, h_and_c, map_state
from ..recurrence.inputs import LossSpec
from .config import dropout_option
from .dropout import Dropout
from .head import VocabularyHead


class CarriedState:
    """Carries the recurrent state of one or more decoders from batch to batch.

    A decoder reads its initial state from here and stores its final state, detached. This is a
    class of its own because data-parallel wrappers copy dicts and lists.

    Args:
        state: the initial state of every decoder: ``(h, c)``, each ``(L, B, H)``; h alone for cells
            without c; None for zeros.

    Attributes:
        state: the state that was stored last.
    """

    _states: dict[int, State]

    def __init__(self, state: State | None = None):
        self.state = state
        self._initial, self._states = state, {}

    def get(self, decoder: nn.Module) -> State | None:
        """The state from which ``decoder`` continues."""
        return self._states.get(id(decoder), self._initial)

    def update(self, decoder: nn.Module, state: State) -> None:
        """Store the final state of ``decoder``."""
        self.state = self._states[id(decoder)] = map_state(torch.Tensor.detach, state)


class RecurrentLanguageDecoder(VocabularyHead, FairseqIncrementalDecoder):
    """Embeddings → recurrent stack → vocabulary.

    Args:
        dictionary: of both input and output.
        embed_tokens: ``nn.Embedding``.
        rnn: one-directional stack, with its own dropout between layers.
        out_embed_dim: size of the output embedding; if it differs from the hidden size, a linear
            layer comes before the output layer.
        cfg: the options of the model. ``locked_dropout`` drops the same features of a sequence at
            all its steps (Gal & Ghahramani 2016), on the embeddings and on the output; ``rnn`` has
            its own setting. ``embed_dropout`` drops all occurrences of a word in a batch (Merity et
            al. 2018).
    """

    def __init__(
        self,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        rnn: RecurrentStack,
        out_embed_dim: int,
        cfg: FairseqDataclass,
    ):
        super().__init__(dictionary)
        self.embed_tokens, self.rnn = embed_tokens, rnn
        self.locked_dropout, self.embed_dropout = cfg.locked_dropout, cfg.embed_dropout
        self.max_target_positions = int(cfg.max_target_positions or sys.maxsize)
        name = type(self).__name__  # for --retain-dropout-modules
        self.dropout_in_module = Dropout(dropout_option(cfg, "decoder_dropout_in"), name)
        self.dropout_out_module = Dropout(dropout_option(cfg, "decoder_dropout_out"), name)
        shared = cfg.share_decoder_input_output_embed
        self.build_head(cfg, len(dictionary), out_embed_dim, shared)

    def forward(
        self,
        prev_output_tokens: Tensor,
        incremental_state: dict[str, dict[str, Any]] | None = None,
        carried: CarriedState | None = None,
        loss_spec: LossSpec | None = None,
        **unused: Any,
    ) -> tuple[Tensor | tuple[Tensor, Tensor], dict[str, Any]]:
        """Logits ``(B, T, V)`` and a dict for ``prev_output_tokens`` ``(B, T)``.

        Padding must be on the right. With ``incremental_state``, only the last token is read and T
        is 1. With ``carried``, a :class:`CarriedState`, the initial state is the final state of the
        previous batch. With ``loss_spec``, the loss replaces the logits, see :meth:`loss`.
        """
        x, extra = self.extract_features(prev_output_tokens, incremental_state, carried)
        return self.output_layer(x) if loss_spec is None else self.loss(x, loss_spec), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        incremental_state: dict[str, dict[str, Any]] | None = None,
        carried: CarriedState | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As :meth:`forward`, without the output layer: ``(B, T, out_embed_dim)``."""
        if incremental_state is not None:
            x = self.one_step(prev_output_tokens[:, -1], incremental_state).unsqueeze(1)
        else:
            tokens = prev_output_tokens.t().contiguous()  # (T, B)
            embedded = self.drop(self.dropout_in_module, self.embed(tokens))
            state = None if carried is None else carried.get(self)
            x, state = self.rnn(embedded, state, tokens=tokens)
            if carried is not None:
                carried.update(self, state)
            x = x.transpose(0, 1).contiguous()  # (B, T, H)
        x = self.drop(self.dropout_out_module, x, time=1)
        if self.additional_fc is not None:
            x = self.drop(self.dropout_out_module, self.additional_fc(x), time=1)
        return x, {"attn": None, "inner_states": None}

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings ``(*, E)`` of ``tokens`` (*); in training, dropped words are zero."""
        embedded = self.embed_tokens(tokens)
        if not self.training or self.embed_dropout == 0:
            return embedded
        shape = (self.embed_tokens.num_embeddings,)
        mask = dropout_mask(embedded, shape, self.embed_dropout)
        return embedded * mask[tokens].unsqueeze(-1)

    def drop(self, module: Dropout, x: Tensor, time: int = 0) -> Tensor:
        """Dropout on ``x``; locked dropout uses one mask along the dimension ``time``."""
        if not self.locked_dropout:
            return module(x)
        if module.p == 0 or not (module.training or module.apply_during_inference):
            return x
        return x * dropout_mask(x, x.narrow(time, 0, 1).shape, module.p)

    def one_step(self, tokens: Tensor, incremental_state: dict[str, dict[str, Any]]) -> Tensor:
        """The top layer's h ``(B, H)`` for ``tokens`` ``(B,)``; caches the state."""
        cached = self.get_incremental_state(incremental_state, "state")
        state = as_state(cached["hidden"], cached["cell"]) if cached else None
        x = self.dropout_in_module(self.embed(tokens))
        h, state = self.rnn.step(x, state, tokens)
        hidden, cell = h_and_c(state)
        self.set_incremental_state(incremental_state, "state", {"hidden": hidden, "cell": cell})
        return h

    def reorder_incremental_state(
        self, incremental_state: dict[str, dict[str, Any]], new_order: Tensor
    ) -> None:
        """Reorder the cached state to the hypotheses ``new_order``."""
        cached = self.get_incremental_state(incremental_state, "state")
        if cached:
            cached = {
                key: value if value is None else value.index_select(1, new_order)
                for key, value in cached.items()
            }
            self.set_incremental_state(incremental_state, "state", cached)

    def max_positions(self) -> int:
        """Longest input accepted."""
        return self.max_target_positions


def check_carries(model: BaseFairseqModel) -> None:
    """Raise UserError for a language model whose decoder takes no :class:`CarriedState`."""
    if not isinstance(getattr(model, "decoder", None), RecurrentLanguageDecoder):
        raise UserError(
            f"{type(model).__name__} does not carry its state from batch to batch; give a "
            "recurrent language model, --arch <cell>_lm, or --sentence-reset"
        )
