"""What the trained models share that are asked from Python: loading, batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from ..diagnostics.explain import explained
from ..errors import UserError
from .packed import is_packed, unpacked
from .word_vectors import GrowingVocabulary, WordVectors

CHECKPOINTS = ("checkpoint_best.pt", "model.pt", "checkpoint_last.pt")


class Hub(nn.Module):
    """A trained model with its task.

    Subclasses have ``task_name`` and ``what``, the kind of model in words.

    Attributes:
        model: the model, in ``eval()`` mode.
        task: its task.
        classes: names of the classes, in the order of the model's outputs.
    """

    task_name: str
    what: str

    def __init__(self, model, task):
        super().__init__()
        self.model, self.task, self.classes = model.eval(), task, task.classes
        self.vocabulary: GrowingVocabulary | None = None

    @classmethod
    def load(cls, path, checkpoint_file=None, data=None, **overrides) -> Hub:
        """See ``from_pretrained`` of the models."""
        with explained():
            return cls._load(path, checkpoint_file, data, **overrides)

    @classmethod
    def _load(cls, path, checkpoint_file, data, **overrides) -> Hub:
        from fairseq import checkpoint_utils
        from fairseq.tasks import TASK_DATACLASS_REGISTRY

        file = find_checkpoint(unpacked(path), checkpoint_file)
        state = checkpoint_utils.load_checkpoint_to_cpu(str(file))
        cfg = state.get("cfg")
        if cfg is None or cfg.task._name != cls.task_name:
            raise UserError(f"{path if is_packed(path) else file} is no {cls.what}; check the path")
        check_options(overrides, cfg)
        vectors = overrides.get("encoder_embed_path")
        folder = find_dictionaries(file.parent, data, cfg.task.data, cls.parts(cfg.model))
        overrides = {"data": folder, **overrides}
        # Those of the task by themselves: several parts may have options of one name.
        own = set(overrides) & (set(cfg.task) | set(options_of(TASK_DATACLASS_REGISTRY, cfg.task)))
        overrides["task"] = {name: overrides.pop(name) for name in own}
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(file)], arg_overrides=overrides
        )
        hub = cls(model, task)
        if vectors is not None:
            hub.take_vectors(vectors)
        return hub

    def take_vectors(self, path: str) -> None:
        """Let words that the dictionary lacks have the vectors that a file has for them.

        Raises:
            UserError: it cannot be read, or has vectors of another dimension.
        """
        table = self.model.encoder.embed_tokens
        self.vocabulary = GrowingVocabulary(
            self.task.dictionary, table, WordVectors(path, table.embedding_dim)
        )
        self.task.index_of = self.vocabulary.index

    @staticmethod
    def parts(model_cfg) -> tuple[str, ...]:
        """The folders with the dictionaries that a model needs."""
        return ("input0", "label")

    def batches(self, dataset, batch_size: int) -> Iterator[tuple[list, dict]]:
        """(indices, batch) of a data set, each batch where the model is.

        Raises:
            UserError: a batch size below 1.
        """
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        if self.vocabulary is not None:
            self.vocabulary.grow()
        device = self.model.encoder.embed_tokens.weight.device
        order = dataset.ordered_indices()
        for indices in cut(order, dataset.num_tokens_vec(order).tolist(), batch_size):
            batch = dataset.collater([dataset[i] for i in indices])
            batch["net_input"] = {k: v.to(device) for k, v in batch["net_input"].items()}
            yield indices, batch


def check_finite(rows: torch.Tensor) -> None:
    """Raises UserError for outputs that are not finite."""
    if not rows.isfinite().all():
        raise UserError(
            "the model's outputs are not finite: its training diverged, or its checkpoint is "
            "damaged; use another checkpoint"
        )


def cut(order, lengths: Sequence[int], batch_size: int, tokens: int = 16384) -> Iterator[list]:
    """Batches of ``order``: of so many items, and when padded of so many tokens if of two or more.

    Long reviews would else need memory by the gigabyte.
    """
    batch: list = []
    longest = 0
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
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    # Those that came after the checkpoint, too.
    newer = [options_of(MODEL_DATACLASS_REGISTRY, cfg.model)]
    newer.append(options_of(TASK_DATACLASS_REGISTRY, cfg.task))
    known = {name for part in (*cfg.values(), *newer) if hasattr(part, "keys") for name in part}
    for name in names:
        if name not in known:
            raise UserError(f"{name} is no option of this model or its task; correct its name")


def options_of(registry: dict, cfg) -> dict:
    """The options, by name, that a model or task has by now that a checkpoint's ``cfg`` is of."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    name = ARCH_MODEL_NAME_REGISTRY.get(cfg._name, cfg._name)
    return getattr(registry.get(name), "__dataclass_fields__", {})


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


def data_places(beside: Path, trained_on: str | None) -> list[Path]:
    """Where the data of a training may be.

    Args:
        beside: folder of its checkpoints; a packed model has its dictionaries there.
        trained_on: the folder that the training read.
    """
    # The last one is that of casrnn train, DIR/out/NAME/seedN, where DIR may have been moved.
    near = os.path.normpath(beside / ".." / ".." / ".." / "data-bin")
    return [beside, Path(trained_on or "."), Path(near)]


def find_dictionaries(
    beside: Path, given: str | None, trained_on: str, parts: Sequence[str]
) -> str:
    """The folder with ``dict.txt`` in each of ``parts``.

    Raises:
        UserError: they are in none of the places.
    """
    places = [given] if given else list(map(str, data_places(beside, trained_on)))
    for place in places:
        files = [os.path.join(place, part, "dict.txt") for part in parts]
        if all(map(os.path.isfile, files)):
            return str(place)
    *first, last = (f"{part}/dict.txt" for part in parts)
    raise UserError(
        f"{', '.join(first)} and {last} are not in {' nor in '.join(map(str, places))}; name the "
        "folder of the training data (--data), or copy them to the checkpoint"
    )
