"""The base class of trained models for use from Python: loading and batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq.data import FairseqDataset
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig
from torch import nn

from ..data.batches import split_batches
from ..diagnostics.explain import explained
from ..errors import UserError
from ..kinds import Kind, check_kind
from ..runs.layout import find_checkpoint, find_data
from .packed import is_packed, unpacked
from .unknown_words import GrowingVocabulary, WordVectors

BATCH_TOKENS = 16384


class Hub(nn.Module):
    """A trained model with its task.

    Subclasses define ``kind``.

    Attributes:
        model: the model, in ``eval()`` mode.
        task: its task.
        classes: names of the classes, in the order of the model's outputs.
    """

    kind: Kind

    def __init__(self, model: BaseFairseqModel, task: FairseqTask):
        super().__init__()
        self.model, self.task, self.classes = model.eval(), task, task.classes
        self.vocabulary: GrowingVocabulary | None = None

    @classmethod
    def load(
        cls,
        path: str | Path,
        checkpoint_file: str | None = None,
        data: str | os.PathLike | None = None,
        **overrides: Any,
    ) -> Hub:
        """See :meth:`.SentenceModel.from_pretrained`."""
        from fairseq.checkpoint_utils import load_checkpoint_to_cpu

        with explained():
            file = find_checkpoint(unpacked(path), checkpoint_file)
            state = load_checkpoint_to_cpu(str(file))
            name = path if is_packed(path) else file
            check_kind(state.get("cfg"), cls.kind, name)
            return cls.of_checkpoint(file, state, data, name=name, **overrides)

    @classmethod
    def of_checkpoint(
        cls,
        file: Path,
        state: dict[str, Any],
        data: str | os.PathLike | None = None,
        *,
        name: str | os.PathLike | None = None,
        **overrides: Any,
    ) -> Hub:
        """The model of a checkpoint of this kind, whose content is ``state``; see :meth:`load`.

        ``name`` stands for the file in messages, as in :func:`build_model`.
        """
        from fairseq.tasks import TASK_DATACLASS_REGISTRY

        cfg = state["cfg"]
        check_options(overrides, cfg)
        vectors = overrides.get("encoder_embed_path")
        # Apart from the others: model and task may have options of the same name.
        task_options = set(cfg.task) | set(options_of(TASK_DATACLASS_REGISTRY, cfg.task))
        overrides["task"] = {name: overrides.pop(name) for name in set(overrides) & task_options}
        model, _, task = build_model(file, state, data, overrides, name)
        hub = cls(model, task)
        if vectors is not None:
            hub.add_vectors(vectors)
        return hub

    def add_vectors(self, path: str) -> None:
        """Give words that are not in the dictionary the vectors of a file.

        Raises:
            UserError: the file cannot be read, or has vectors of another dimension.
        """
        table = self.model.encoder.embed_tokens
        self.vocabulary = GrowingVocabulary(
            self.task.dictionary, table, WordVectors(path, table.embedding_dim)
        )
        self.task.index_of = self.vocabulary.index

    def batches(
        self, dataset: FairseqDataset, batch_size: int
    ) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Yields (indices, batch) of a data set, with the batch on the model's device.

        Raises:
            UserError: a batch size below 1.
        """
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        if self.vocabulary is not None:
            self.vocabulary.grow()
        device = self.model.encoder.embed_tokens.weight.device
        order = dataset.ordered_indices()
        lengths = dataset.num_tokens_vec(order).tolist()
        for indices in split_batches(order, lengths, BATCH_TOKENS, batch_size):
            batch = dataset.collater([dataset[i] for i in indices])
            batch["net_input"] = {k: v.to(device) for k, v in batch["net_input"].items()}
            yield indices, batch


def build_model(
    file: Path,
    state: dict[str, Any],
    data: str | os.PathLike | None,
    options: dict[str, Any],
    name: str | os.PathLike | None = None,
) -> tuple[BaseFairseqModel, DictConfig, FairseqTask]:
    """The model of a checkpoint, all options, and the task.

    Args:
        file: the checkpoint.
        state: its content.
        data: folder of the dictionaries, see :func:`.find_data`.
        options: options of all parts that replace the checkpoint's; if there is a key ``task``, its
            value has those of the task.
        name: stands for the file in messages, for a packed model.

    Raises:
        UserError: there are no dictionaries, or weights are not finite.
    """
    from fairseq import checkpoint_utils

    options.get("task", options)["data"] = str(find_data(file.parent, data, state["cfg"]))
    checkpoint_utils.overwrite_args_by_name(state["cfg"], options)
    if state.get("args") is not None:  # of an old version of fairseq
        vars(state["args"]).update(options)
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(file)], state=state)
    check_weights_finite(model, name or file)
    return model, cfg, task


def check_weights_finite(model: nn.Module, path: str | os.PathLike) -> None:
    """Raise UserError if weights of ``model``, from the checkpoint ``path``, are not finite."""
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not weight.isfinite().all():
            raise UserError(
                f"checkpoint {path} has weights in {name} that are not finite (NaN or infinite): "
                "its training diverged, or it is damaged; use another checkpoint"
            )


def check_outputs_finite(rows: torch.Tensor) -> None:
    """Raise UserError for outputs that are not finite."""
    if not rows.isfinite().all():
        raise UserError(
            "the model's outputs are not finite: its training diverged, or its checkpoint is "
            "damaged; use another checkpoint"
        )


def as_list(sentences: Iterable[Any]) -> list[Any]:
    """``sentences`` as a list. Raises UserError for a single string."""
    if isinstance(sentences, str):
        raise UserError(f"give a list of sentences, [{sentences!r}], not a single string")
    return list(sentences)


def check_options(names: Iterable[str], cfg: DictConfig) -> None:
    """Raise UserError for a name that is not an option of any part of a checkpoint's ``cfg``."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    # The options may be newer than the checkpoint.
    newer = [options_of(MODEL_DATACLASS_REGISTRY, cfg.model)]
    newer.append(options_of(TASK_DATACLASS_REGISTRY, cfg.task))
    known = {name for part in (*cfg.values(), *newer) if hasattr(part, "keys") for name in part}
    for name in names:
        if name not in known:
            raise UserError(f"{name} is not an option of this model or its task; correct its name")


def options_of(registry: dict[str, type], cfg: DictConfig) -> dict[str, Any]:
    """The current dataclass fields, by name, of the model or task that ``cfg`` belongs to."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    name = ARCH_MODEL_NAME_REGISTRY.get(cfg._name, cfg._name)
    return getattr(registry.get(name), "__dataclass_fields__", {})
