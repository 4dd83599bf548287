"""Recurrent encoder of a sequence-to-sequence model."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from ..layers import RecurrentStack
from ..layers.sequences import rows_at, take_rows, trusted
from ..layers.state import h_and_c
from ..recurrence.memory import on_host
from .config import dropout_option
from .dropout import Dropout


class RecurrentEncoder(FairseqEncoder):
    """Embeds the source and runs a :class:`RecurrentStack` over it.

    Source padding may be on the left or the right: sentences are moved to the front for the
    recurrence and the outputs moved back, so that attention refers to the positions of
    ``src_tokens``.

    Args:
        dictionary: source dictionary.
        embed_tokens: ``nn.Embedding`` of the source.
        rnn: the stack; its input size is the embedding's.
        cfg: the options of the model. ``encoder_dropout_in`` is on the embeddings,
            ``encoder_dropout_out`` on the outputs.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        rnn: RecurrentStack,
        cfg: FairseqDataclass,
    ):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.rnn = rnn
        self.padding_idx = dictionary.pad()
        name = "RecurrentEncoder"  # for --retain-dropout-modules
        self.dropout_in_module = Dropout(dropout_option(cfg, "encoder_dropout_in"), name)
        self.dropout_out_module = Dropout(dropout_option(cfg, "encoder_dropout_out"), name)
        self.max_source_positions = int(cfg.max_source_positions)

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor | None = None, **unused: Any
    ) -> dict[str, Any]:
        """Encode ``src_tokens`` (B, S).

        Returns:
            ``encoder_out`` (S, B, C), zero at padding; ``encoder_padding_mask`` (B, S), True at
            padding, or None without padding; ``encoder_hidden`` and ``encoder_cell`` (L, B, C),
            the final states of each layer with both directions concatenated (``encoder_cell`` is
            None for a GRU); ``rows``, None: see :meth:`reorder_encoder_out`.
        """
        padding = src_tokens.eq(self.padding_idx)
        mask: Tensor | None = padding
        # On a GPU this would synchronise; a trace must also work for batches with padding.
        if on_host(padding) and not bool(padding.any()):
            mask = lengths = back = None
        else:
            # A row of padding alone counts as one word, so that attention has something to attend.
            padding[:, 0] = padding[:, 0] & ~padding.all(1)
            counts, to_front, back = roll_to_front(padding)
            src_tokens = take_rows(src_tokens.t(), to_front).t()
            lengths = trusted(counts)
        x = self.dropout_in_module(self.embed_tokens(src_tokens)).transpose(0, 1)
        tokens = src_tokens.t()
        output, state = self.rnn(x.contiguous(), lengths=lengths, tokens=tokens)
        output = self.dropout_out_module(output)
        if back is not None:
            output = take_rows(output, back)
        hidden, cell = h_and_c(state)
        return {
            "encoder_out": output,
            "encoder_padding_mask": mask,
            "encoder_hidden": self.concat_directions(hidden),
            "encoder_cell": None if cell is None else self.concat_directions(cell),
            "rows": None,
        }

    def concat_directions(self, state: Tensor) -> Tensor:
        """Final states ``(L*D, B, H)`` as ``(L, B, D*H)``."""
        directions, (_, batch, size) = self.rnn.num_directions, state.shape
        state = state.view(self.rnn.num_layers, directions, batch, size).transpose(1, 2)
        return state.reshape(self.rnn.num_layers, batch, directions * size)

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """The encoder's output for a batch whose rows are the sentences ``new_order`` (B',).

        Nothing is copied: ``rows`` has the sentence of each row. Beam search reorders at every
        step, and all hypotheses of a sentence share its encoder output.
        """
        rows = encoder_out["rows"]
        rows = new_order if rows is None else rows.index_select(0, new_order)
        return {**encoder_out, "rows": rows}

    def max_positions(self) -> int:
        """Longest source accepted."""
        return self.max_source_positions


def expand_rows(encoder_out: dict[str, Any]) -> dict[str, Any]:
    """The encoder's output with a copy of the sentence for each row of a reordered batch."""
    rows = encoder_out["rows"]
    if rows is None:
        return encoder_out
    batch_dim = {"encoder_padding_mask": 0}
    copies = {
        key: value if value is None else value.index_select(batch_dim.get(key, 1), rows)
        for key, value in encoder_out.items()
        if key != "rows"
    }
    return {**copies, "rows": None}


def roll_to_front(padding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How to roll sentences with ``padding`` (B, S) on either side to the front and back.

    Each sentence must have a word.

    Returns:
        The length ``(B,)`` from the first to the last word (the text itself may contain the padding
        symbol), and the rows ``(S*B,)`` for :func:`take_rows`, to the front and back.
    """
    steps = torch.arange(padding.size(1), device=padding.device)
    words = (steps + 1).masked_fill(padding, 0)
    shift, end = padding.byte().argmin(1), words.amax(1)
    steps = steps.unsqueeze(1)
    to_front, back = ((steps + offset) % len(steps) for offset in (shift, -shift))
    return end - shift, rows_at(to_front), rows_at(back)
