"""Taggers: embedding and character CNN → backbone → a tag for each word, by CRF or softmax.

One fairseq model for each backbone: ``<cell>_tagger`` for every cell,
``sentence_state_lstm_tagger``, ``shortcut_lstm_tagger``.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from ..data.tag_constraints import Constraints
from ..errors import UserError, check_at_least
from .config import config_for, dropout_option
from .dropout import Dropout
from .sentence_backbones import (
    Backbone,
    RecurrentBackbone,
    SentenceStateBackbone,
    ShortcutBackbone,
)
from .sentence_config import (
    RecurrentTaggerConfig,
    SentenceStateTaggerConfig,
    ShortcutTaggerConfig,
    TaggerConfig,
)
from .sentence_model import SentenceModel, register
from .tagger_hub import TaggerHub
from .tagger_parts import CharCNN, TagCRF, WordEncoder

OUTPUTS = ("crf", "softmax")


class Tagger(SentenceModel):
    """Tags for the words of a sentence.

    Attributes:
        encoder: the :class:`.WordEncoder`.
        output: linear layer from the encoder's states to the tags' scores ("emissions").
        crf: :class:`.TagCRF`, or None.
    """

    suffix, hub = "tagger", TaggerHub
    sizes = ("char_embed_dim",)
    dropouts = ("tagger_dropout",)

    def __init__(
        self,
        cfg: TaggerConfig,
        task: FairseqTask,
        embed: nn.Embedding,
        backbone: Backbone,
        char_cnn: CharCNN | None,
    ):
        super().__init__()
        begin = None if getattr(cfg, "no_boundaries", True) else task.source_dictionary.bos()
        dropout_in = dropout_option(cfg, "encoder_dropout_in")
        self.encoder = WordEncoder(embed, backbone, char_cnn, dropout_in, begin)
        self.dropout = Dropout(cfg.tagger_dropout, module_name="Tagger")
        classes = len(task.classes)
        self.output = nn.Linear(self.encoder.output_size, classes)
        self.crf = TagCRF(classes) if cfg.tagger_output == "crf" else None

    @classmethod
    def check_options(cls, cfg: TaggerConfig, task: FairseqTask) -> None:
        """Raise UserError for options that contradict each other or lie out of range."""
        check_at_least(0, char_filters=cfg.char_filters)
        if cfg.tagger_output not in OUTPUTS:
            raise UserError(f"--tagger-output is '{cfg.tagger_output}'; use crf or softmax")
        if not hasattr(task, "characters"):
            raise UserError("taggers need --task sequence_tagging")

    @classmethod
    def build_char_cnn(cls, cfg: TaggerConfig, task: FairseqTask) -> tuple[CharCNN | None, int]:
        """The character CNN and its size. Raises UserError if the data has no characters."""
        if not cfg.char_filters:
            return None, 0
        if task.characters is None:
            raise UserError(
                "--char-filters needs the words' characters, but the data folder has no "
                "spelling/; prepare the data with casrnn prepare tagging, or drop the option"
            )
        char_cnn = CharCNN(
            characters=len(task.characters),
            padding=task.characters.pad(),
            embed_dim=cfg.char_embed_dim,
            filters=cfg.char_filters,
            dropout=dropout_option(cfg, "encoder_dropout_in"),
        )
        task.use_characters()
        return char_cnn, cfg.char_filters

    def forward(
        self, src_tokens: Tensor, spelling: Tensor | None = None, target: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Scores of the tags, and the loss if the correct tags are given.

        Args:
            src_tokens: ``(B, T + 1)`` words, each sentence ended by </s>, padded at the end.
            spelling: ``(B, T, W)`` characters of the words, for a model with ``--char-filters``.
            target: ``(B, T)`` indices of the tags, -1 at padding.

        Returns:
            Emissions ``(B, max(T, 1), K)`` in at least float32, and -log p of the tags, summed over
            the batch, or None.
        """
        states = self.dropout(self.encoder(src_tokens, spelling))
        emissions = self.output(states)
        if emissions.dtype.itemsize < 4:
            emissions = emissions.float()
        if target is None:
            return emissions, None
        if self.crf is not None:
            return emissions, self.crf.loss(emissions, target)
        flat = emissions.flatten(0, 1)
        return emissions, F.cross_entropy(flat, target.flatten(), ignore_index=-1, reduction="sum")

    def best(
        self, emissions: Tensor, lengths: Tensor, constraints: Constraints | None = None
    ) -> list[list[int]]:
        """The best tags of sentences with ``lengths`` (B,) words.

        A CRF finds them by Viterbi, and only tags that ``constraints`` allow; a softmax chooses
        each word's tag by itself.
        """
        if self.crf is not None:
            return self.crf.best(emissions, lengths, constraints)
        rows = emissions.argmax(-1).tolist()
        return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]

    @torch.no_grad()
    def marginals(
        self, emissions: Tensor, lengths: Tensor, constraints: Constraints | None = None
    ) -> Tensor:
        """Marginal probabilities ``(B, T, K)`` of the tags of each word."""
        if self.crf is not None:
            return self.crf.marginals(emissions, lengths, constraints)
        return emissions.softmax(-1)

    @torch.no_grad()
    def probabilities(self, emissions: Tensor, tags: list[list[int]]) -> list[float]:
        """The joint probability of each sentence's tags (indices, without padding).

        ``emissions`` is ``(B, T, K)``, for sentences of up to T words and K tags.
        """
        rows = [torch.tensor(row, device=emissions.device, dtype=torch.long) for row in tags]
        target = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
        target = F.pad(target, (0, emissions.size(1) - target.size(1)), value=-1)
        if self.crf is not None:
            losses = self.crf.losses(emissions, target)
        else:
            flat = emissions.flatten(0, 1), target.flatten()
            losses = F.cross_entropy(*flat, ignore_index=-1, reduction="none")
            losses = losses.view_as(target).sum(-1)
        return losses.neg().exp().tolist()


def register_cell(cell: str) -> None:
    """Register ``<cell>_tagger`` for a cell of FAMILIES."""
    config = config_for(cell, RecurrentTaggerConfig)
    register(Tagger, cell, functools.partial(RecurrentBackbone, cell), config)


register(Tagger, "sentence_state_lstm", SentenceStateBackbone, SentenceStateTaggerConfig)
register(Tagger, "shortcut_lstm", ShortcutBackbone, ShortcutTaggerConfig)
