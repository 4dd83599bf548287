"""A trained sentence classifier for use from Python: text in, classes or vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserError
from .hub import Hub, check_finite, listed


class Prediction(NamedTuple):
    """A class and its probability."""

    label: str
    probability: float


class SentenceHub(Hub):
    """What ``from_pretrained`` of a sentence encoder returns.

    Attributes:
        model: the :class:`.SentenceClassifier`, in ``eval()`` mode.
        task: the ``sentence_classification`` task.
        classes: names of the classes, in the order of the logits.
    """

    task_name, what = "sentence_classification", "sentence classifier"

    def predict(self, sentences: Sequence, batch_size: int = 32) -> list[Prediction]:
        """The most probable class of each sentence.

        Args:
            sentences: strings, or pairs of strings if the model compares two sentences.
            batch_size: how many to compute at once.

        Raises:
            UserError: pairs where single sentences are needed, or the other way round.
        """
        best = self.probabilities(sentences, batch_size).max(-1)
        return [
            Prediction(self.classes[int(number)], float(value))
            for value, number in zip(best.values, best.indices, strict=True)
        ]

    def probabilities(self, sentences: Sequence, batch_size: int = 32) -> Tensor:
        """Probabilities ``(N, classes)``; arguments and errors as for :meth:`predict`."""
        items = [self._tokens(item) for item in listed(sentences)]
        logits = self._run(items, lambda batch: self.model(**batch), batch_size, len(self.classes))
        return logits.float().softmax(-1)

    def encode(self, sentences: Sequence[str], batch_size: int = 32) -> Tensor:
        """Sentence vectors ``(N, C)``, of each sentence on its own also where pairs are compared.

        Raises:
            UserError: something that is no string.
        """
        sentences = listed(sentences)
        for sentence in sentences:
            if not isinstance(sentence, str):
                raise UserError(f"encode takes strings, not {sentence!r}")
        items = [(self.task.encode_text(sentence),) for sentence in sentences]
        encoder = self.model.encoder
        size = encoder.output_size
        return self._run(items, lambda batch: encoder(batch["src_tokens"]), batch_size, size)

    def _tokens(self, item) -> tuple[Tensor, ...]:
        parts = tuple(item) if isinstance(item, (tuple, list)) else (item,)
        wanted = 2 if self.task.pairs else 1
        if len(parts) != wanted or not all(isinstance(part, str) for part in parts):
            what = "pairs of sentences" if self.task.pairs else "single sentences"
            raise UserError(f"this model takes {what}, not {item!r}")
        return tuple(self.task.encode_text(part) for part in parts)

    def _run(self, items, function, batch_size: int, width: int) -> Tensor:
        """``function`` of the items' batches, its rows in the items' order: ``(N, width)``."""
        if not items:
            return torch.empty(0, width)
        columns = [list(column) for column in zip(*items, strict=True)]
        lengths = [[len(tokens) for tokens in column] for column in columns]
        dataset = self.task.build_dataset_for_inference(
            columns[0], lengths[0], pair_tokens=columns[1] if len(columns) > 1 else None
        )
        return self._run_dataset(dataset, function, batch_size)

    def of_dataset(self, dataset, batch_size: int = 32) -> Tensor:
        """Probabilities ``(N, classes)`` of a data set that the task loaded."""
        logits = self._run_dataset(dataset, lambda batch: self.model(**batch), batch_size)
        return logits.float().softmax(-1)

    @torch.no_grad()
    def _run_dataset(self, dataset, function, batch_size: int) -> Tensor:
        order, outputs = [], []
        for indices, batch in self.batches(dataset, batch_size):
            order += indices
            outputs.append(function(batch["net_input"]))
        rows = torch.cat(outputs)
        check_finite(rows)
        result = torch.empty_like(rows)
        result[torch.as_tensor(order, device=rows.device)] = rows
        return result
