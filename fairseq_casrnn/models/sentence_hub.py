"""A trained sentence classifier for use from Python: text in, classes or vectors out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..errors import UserError

CHECKPOINTS = ("checkpoint_best.pt", "model.pt", "checkpoint_last.pt")


class Prediction(NamedTuple):
    """A class and its probability."""

    label: str
    probability: float


class SentenceHub(nn.Module):
    """What ``from_pretrained`` of a sentence encoder returns.

    Attributes:
        model: the :class:`.SentenceClassifier`, in ``eval()`` mode.
        task: the ``sentence_classification`` task.
        classes: names of the classes, in the order of the logits.
    """

    def __init__(self, model, task):
        super().__init__()
        self.model, self.task, self.classes = model.eval(), task, task.classes

    @classmethod
    def load(cls, path, checkpoint_file=None, data=None, **overrides) -> SentenceHub:
        """See :meth:`.SentenceClassifier.from_pretrained`."""
        from ..explain import explained

        with explained():
            return cls._load(path, checkpoint_file, data, **overrides)

    @classmethod
    def _load(cls, path, checkpoint_file, data, **overrides) -> SentenceHub:
        from fairseq import checkpoint_utils

        file = find_checkpoint(Path(path), checkpoint_file)
        state = checkpoint_utils.load_checkpoint_to_cpu(str(file))
        cfg = state.get("cfg")
        if cfg is None or cfg.task._name != "sentence_classification":
            raise UserError(f"{file} is no sentence classifier; check the path")
        check_options(overrides, cfg)
        overrides = {"data": find_dictionaries(file.parent, data, cfg.task.data), **overrides}
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(file)], arg_overrides=overrides
        )
        return cls(model, task)

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
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        device = self.model.encoder.embed_tokens.weight.device
        order, rows = dataset.ordered_indices(), []
        for indices in cut(order, dataset.num_tokens_vec(order).tolist(), batch_size):
            batch = dataset.collater([dataset[i] for i in indices])
            rows.append(function({k: v.to(device) for k, v in batch["net_input"].items()}))
        rows = torch.cat(rows)
        if not rows.isfinite().all():
            raise UserError(
                "the model's outputs are not finite: its training diverged, or its checkpoint is "
                "damaged; use another checkpoint"
            )
        result = torch.empty_like(rows)
        result[torch.as_tensor(order, device=device)] = rows
        return result


def cut(order, lengths: Sequence[int], batch_size: int, tokens: int = 16384) -> Iterator[list]:
    """Batches of ``order``: of so many items, and when padded of so many tokens if of two or more.

    Long reviews would else need memory by the gigabyte.
    """
    batch, longest = [], 0
    for index, length in zip(order, lengths, strict=True):
        longest = max(longest, length)
        if batch and (len(batch) == batch_size or longest * (len(batch) + 1) > tokens):
            yield batch
            batch, longest = [], length
        batch.append(index)
    if batch:
        yield batch


def listed(sentences) -> list:
    """``sentences`` as a list. Raises UserError for a single string, whose items are letters."""
    if isinstance(sentences, str):
        raise UserError(f"give a list of sentences, [{sentences!r}], not a single string")
    return list(sentences)


def check_options(names, cfg) -> None:
    """Raises UserError for a name that no part of a checkpoint's configuration has as an option."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

    model = ARCH_MODEL_NAME_REGISTRY.get(cfg.model._name, cfg.model._name)
    newer = getattr(MODEL_DATACLASS_REGISTRY.get(model), "__dataclass_fields__", {})
    known = {name for part in (*cfg.values(), newer) if hasattr(part, "keys") for name in part}
    for name in names:
        if name not in known:
            raise UserError(f"{name} is no option of this model or its task; correct its name")


def find_checkpoint(path: Path, name: str | None) -> Path:
    """The checkpoint meant by a folder or file, and a name in the folder.

    Raises:
        UserError: there is none.
    """
    if path.is_file():
        return path
    for candidate in (name,) if name else CHECKPOINTS:
        if (path / candidate).is_file():
            return path / candidate
    wanted = name or " or ".join(CHECKPOINTS)
    raise UserError(f"there is no checkpoint at {path} ({wanted}); check the path")


def find_dictionaries(beside: Path, given: str | None, trained_on: str) -> str:
    """The folder with ``input0/dict.txt`` and ``label/dict.txt``.

    Raises:
        UserError: they are in none of the places.
    """
    places = [given] if given else [str(beside), trained_on]
    for place in places:
        files = [os.path.join(place, part, "dict.txt") for part in ("input0", "label")]
        if all(map(os.path.isfile, files)):
            return str(place)
    raise UserError(
        f"input0/dict.txt and label/dict.txt are not in {' nor in '.join(map(str, places))}; name "
        "the folder of the training data (--data), or copy them to the checkpoint"
    )
