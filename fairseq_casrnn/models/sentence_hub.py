"""A trained sentence classifier for use from Python: from text to classes or vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from ..errors import UserError
from ..kinds import CLASSIFIER
from .hub import Hub, as_list, check_outputs_finite


class Prediction(NamedTuple):
    """A class and its probability."""

    label: str
    probability: float


class SentenceHub(Hub):
    """The interface that ``from_pretrained`` of a sentence encoder returns.

    Attributes:
        model: the :class:`.SentenceClassifier`, in ``eval()`` mode.
        task: the ``sentence_classification`` task.
        classes: names of the classes, in the order of the logits.
    """

    kind = CLASSIFIER

    def predict(self, sentences: Sequence, batch_size: int = 32) -> list[Prediction]:
        """The most probable class of each sentence.

        Args:
            sentences: strings, or pairs of strings if the model compares two sentences.
            batch_size: sentences per batch.

        Raises:
            UserError: pairs for a model of single sentences, or vice versa.
        """
        best = self.probabilities(sentences, batch_size).max(-1)
        return [
            Prediction(self.classes[int(number)], float(value))
            for value, number in zip(best.values, best.indices, strict=True)
        ]

    def probabilities(self, sentences: Sequence, batch_size: int = 32) -> Tensor:
        """Probabilities ``(N, classes)``; arguments and errors as for :meth:`predict`."""
        items = [self._tokens(item) for item in as_list(sentences)]
        if not items:
            return torch.empty(0, len(self.classes))
        return self.of_dataset(self._dataset(items), batch_size)

    def encode(self, sentences: Sequence[str], batch_size: int = 32) -> Tensor:
        """Sentence vectors ``(N, C)``. Models of pairs encode each sentence on its own, too.

        Raises:
            UserError: an item that is not a string.
        """
        sentences = as_list(sentences)
        for sentence in sentences:
            if not isinstance(sentence, str):
                raise UserError(f"encode takes strings, not {sentence!r}")
        encoder = self.model.encoder
        if not sentences:
            return torch.empty(0, encoder.output_size)
        dataset = self._dataset([(self.task.encode_text(sentence),) for sentence in sentences])
        return self._run(dataset, lambda batch: encoder(batch["src_tokens"]), batch_size)

    def _tokens(self, item: str | Sequence[str]) -> tuple[Tensor, ...]:
        parts = tuple(item) if isinstance(item, (tuple, list)) else (item,)
        expected = 2 if self.task.pairs else 1
        if len(parts) != expected or not all(isinstance(part, str) for part in parts):
            pairs = 'a list of pairs of sentences, [("first", "second")]'
            what = pairs if self.task.pairs else "single sentences"
            raise UserError(f"this model takes {what}, not {item!r}")
        return tuple(self.task.encode_text(part) for part in parts)

    def of_dataset(self, dataset: FairseqDataset, batch_size: int = 32) -> Tensor:
        """Probabilities ``(N, classes)`` for a data set of the task."""
        logits = self._run(dataset, lambda batch: self.model(**batch), batch_size)
        return logits.float().softmax(-1)

    def _dataset(self, items: Sequence[tuple[Tensor, ...]]) -> FairseqDataset:
        """A data set of sentences or pairs."""
        first, *pair = (list(column) for column in zip(*items, strict=True))
        lengths = [len(tokens) for tokens in first]
        return self.task.build_dataset_for_inference(
            first, lengths, pair_tokens=pair[0] if pair else None
        )

    @torch.no_grad()
    def _run(
        self,
        dataset: FairseqDataset,
        function: Callable[[dict[str, Tensor]], Tensor],
        batch_size: int,
    ) -> Tensor:
        """Apply ``function`` to the batches of a data set; its rows ``(N, …)`` in their order."""
        order, outputs = [], []
        for indices, batch in self.batches(dataset, batch_size):
            order += indices
            outputs.append(function(batch["net_input"]))
        rows = torch.cat(outputs)
        check_outputs_finite(rows)
        result = torch.empty_like(rows)
        result[torch.as_tensor(order, device=rows.device)] = rows
        return result
