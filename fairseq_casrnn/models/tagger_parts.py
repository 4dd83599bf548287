"""The parts of a tagger: character CNN, word encoder, CRF."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torchcrf import CRF

from ..data.tag_constraints import Constraints
from .dropout import Dropout
from .embedding import uniform_embedding
from .sentence_backbones import Backbone, count_tokens


class CharCNN(nn.Module):
    """Convolution over three characters at a time, max pooling (Ma and Hovy 2016, §2.1).

    Args:
        characters: size of the character dictionary.
        padding: index of its padding symbol.
        embed_dim: size of the character embeddings, initialised within ±√(3 / embed_dim).
        filters: features of a word.
        dropout: on the embeddings.
    """

    def __init__(
        self,
        characters: int,
        padding: int,
        embed_dim: int,
        filters: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.padding = padding
        self.embed = uniform_embedding(characters, embed_dim, padding, (3 / embed_dim) ** 0.5)
        self.dropout = Dropout(dropout)
        self.convolve = nn.Conv1d(embed_dim, filters, 3, padding=1)

    def forward(self, spelling: Tensor) -> Tensor:
        """Features ``(B, T, filters)`` of characters (B, T, W), each word padded at its end.

        A word without characters, such as padding, has the features 0.
        """
        shape, rows = spelling.shape, spelling.flatten(0, 1)  # (B·T, W)
        padding = rows.eq(self.padding)
        x = self.dropout(self.embed(rows)).masked_fill(padding.unsqueeze(-1), 0.0)
        x = self.convolve(x.transpose(1, 2))  # (B·T, F, W)
        x = x.masked_fill(padding.unsqueeze(1), float("-inf")).amax(-1)
        empty = padding.all(-1, keepdim=True)
        return x.masked_fill(empty, 0.0).view(*shape[:2], x.size(1))


class WordEncoder(nn.Module):
    """A state for each word of a sentence.

    Args:
        embed_tokens: ``nn.Embedding`` with a padding index.
        backbone: see :mod:`.sentence_backbones`; its input is the embedding and the features of
            the characters.
        char_cnn: :class:`CharCNN`, or None for words alone.
        dropout: on the backbone's input.
        begin: index of <s> if the backbone reads sentences between <s> and </s>; None if it reads
            the words alone.
    """

    def __init__(
        self,
        embed_tokens: nn.Embedding,
        backbone: Backbone,
        char_cnn: CharCNN | None,
        dropout: float,
        begin: int | None,
    ):
        super().__init__()
        self.embed_tokens = embed_tokens
        self.body, self.spelling = backbone, char_cnn  # the names in checkpoints
        self.dropout = Dropout(dropout, module_name="WordEncoder")
        self.begin, self.output_size = begin, backbone.output_size

    def forward(self, tokens: Tensor, spelling: Tensor | None = None) -> Tensor:
        """States ``(B, max(T, 1), output_size)`` of the words.

        Args:
            tokens: ``(B, T + 1)``, each sentence ended by </s>, padded at the end.
            spelling: ``(B, T, W)`` characters of the words, for a model with a character CNN.
        """
        pad: Any
        pad, words = self.embed_tokens.padding_idx, max(tokens.size(1) - 1, 1)
        lengths = count_tokens(tokens, pad)  # including </s>
        if self.begin is None:
            tokens, lengths = tokens[:, :words], (lengths - 1).clamp(min=1)
        else:
            begin = tokens.new_full((tokens.size(0), 1), self.begin)
            tokens, lengths = torch.cat([begin, tokens], dim=1), lengths.clamp(min=1) + 1
        x = self.embed_tokens(tokens)  # (B, T, E), or (B, T + 2, E) with <s> and </s>
        if self.spelling is not None:
            features = self.spelling(spelling)
            before = 0 if self.begin is None else 1
            after = tokens.size(1) - before - features.size(1)
            x = torch.cat([x, nn.functional.pad(features, (0, 0, before, after))], dim=-1)
        x = self.dropout(x).transpose(0, 1)
        states, _ = self.body(x, lengths, tokens.t())
        states = states.transpose(0, 1)
        return states if self.begin is None else states[:, 1 : 1 + words]


class TagCRF(CRF):
    """pytorch-crf's linear-chain CRF that also takes sentences without words.

    Parameters: ``start_transitions`` (K,), ``end_transitions`` (K,), ``transitions`` (K, K).
    """

    def __init__(self, classes: int):
        super().__init__(classes, batch_first=True)

    def loss(self, emissions: Tensor, target: Tensor) -> Tensor:
        """-log p of the tags ``target`` (B, T), -1 at padding, summed; ``emissions`` (B, T, K)."""
        return self.losses(emissions, target).sum()

    def losses(self, emissions: Tensor, target: Tensor) -> Tensor:
        """As :meth:`loss`, for each sentence: ``(B,)``.

        pytorch-crf's own loss has a host-device synchronisation at every word.
        """
        # At least float32 for sums over words, and, since it is converted once, for gradients.
        start, end, transitions = weights = tuple(
            weight.float() if weight.dtype.itemsize < 4 else weight for weight in self.weights()
        )
        emissions, real = emissions.transpose(0, 1), target.t().ge(0)  # (T, B, K), (T, B)
        tags = target.t().clamp(min=0)
        last = (real.sum(0) - 1).clamp(min=0)
        chosen = emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1).masked_fill(~real, 0.0).sum(0)
        steps = transitions[tags[:-1], tags[1:]].masked_fill(~real[1:], 0.0).sum(0)
        chosen = start[tags[0]] + chosen + steps + end[tags.gather(0, last.unsqueeze(0))[0]]
        losses = log_partition(emissions, real, *weights) - chosen
        return losses.masked_fill(~real[0], 0.0)  # no loss without words

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of the first tag (K,), of the last tag (K,), and of tag j after tag i (K, K)."""
        return self.start_transitions, self.end_transitions, self.transitions

    def marginals(
        self, emissions: Tensor, lengths: Tensor, constraints: Constraints | None = None
    ) -> Tensor:
        """Marginal probability of each tag at each word, over all (allowed) tags of other words.

        Computed as the gradient of log Z with respect to the emissions, on the CPU. Arguments as
        for :meth:`best`.

        Returns:
            ``(B, T, K)``, in double precision, 0 at padding.
        """
        crf = self.constrained(constraints).double()
        real = torch.arange(emissions.size(1)).unsqueeze(1) < lengths.cpu()
        with torch.enable_grad():
            rows = emissions.detach().cpu().double().transpose(0, 1).requires_grad_()
            total = log_partition(rows, real, *crf.weights()).masked_fill(~real[0], 0.0)
            (found,) = torch.autograd.grad(total.sum(), rows)
        return found.transpose(0, 1)

    def best(
        self, emissions: Tensor, lengths: Tensor, constraints: Constraints | None = None
    ) -> list[list[int]]:
        """The most probable tags of the words of each sentence (Viterbi).

        Args:
            emissions: ``(B, T, K)``.
            lengths: ``(B,)`` words.
            constraints: transitions that the scheme of the tags forbids.
        """
        emissions, lengths = emissions.cpu(), lengths.cpu()  # pytorch-crf reads every tag
        has_words = lengths.gt(0)
        if not has_words.any():
            return [[] for _ in lengths]
        mask = torch.arange(emissions.size(1)) < lengths[has_words].unsqueeze(1)
        found = iter(self.constrained(constraints).decode(emissions[has_words], mask))
        return [next(found) if nonempty else [] for nonempty in has_words.tolist()]

    def constrained(self, constraints: Constraints | None) -> TagCRF:
        """A copy on the CPU, with the penalties of ``constraints`` added to its transitions."""
        crf = copy.deepcopy(self).cpu()
        if constraints is not None:
            if crf.transitions.dtype.itemsize < 4:
                crf.float()  # in half precision the penalty would absorb the scores
            with torch.no_grad():
                crf.start_transitions += constraints.start
                crf.end_transitions += constraints.end
                crf.transitions += constraints.steps
        return crf


def log_partition(
    emissions: Tensor, real: Tensor, start: Tensor, end: Tensor, transitions: Tensor
) -> Tensor:
    """A CRF's log Z ``(B,)`` for emissions (T, B, K); ``real`` (T, B) is False at padding."""
    total = start + emissions[0]  # (B, K): logsumexp over all tags of the previous words
    for t in range(1, len(emissions)):
        new = (total.unsqueeze(2) + transitions).logsumexp(1) + emissions[t]
        total = torch.where(real[t].unsqueeze(1), new, total)
    return (total + end).logsumexp(-1)
