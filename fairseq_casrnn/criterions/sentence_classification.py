"""Cross-entropy over classes, with class weights and an L2 penalty."""

# No "from __future__ import annotations": fairseq needs the fields' types as objects.
# ruff: noqa: UP045
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy
import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import FairseqDataset
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from ..data.datasets import UNSEEN_CLASS
from ..errors import UserError
from ..evaluation import confusion


@dataclass
class SentenceClassificationCriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    class_weights: Optional[str] = field(
        default=None,
        metadata={
            "help": (
                "class weights in the loss: NAME:WEIGHT,NAME:WEIGHT (other classes 1), or "
                "balanced: inversely proportional to the class frequency in training"
            )
        },
    )
    l2: float = field(
        default=0.0,
        metadata={
            "help": (
                "L2 penalty: adds L2/2 times the sum of squares of all weight matrices "
                "except the embeddings"
            )
        },
    )
    l2_embeddings: float = field(
        default=0.0,
        metadata={"help": "L2 penalty: adds L2/2 times the sum of squares of the embeddings"},
    )


@register_criterion("sentence_classification", dataclass=SentenceClassificationCriterionConfig)
class SentenceClassificationCriterion(FairseqCriterion):
    """Cross-entropy; logs accuracy and macro-F1, and keeps the confusion matrix.

    Raises:
        UserError: unknown classes, negative weights, a negative ``--l2`` or ``--l2-embeddings``.
    """

    def __init__(
        self,
        task: FairseqTask,
        class_weights: Optional[str] = None,
        l2: float = 0.0,
        l2_embeddings: float = 0.0,
    ):
        super().__init__(task)
        if not hasattr(task, "pairs"):
            raise UserError(
                "--criterion sentence_classification needs --task sentence_classification"
            )
        for option, value in (("--l2", l2), ("--l2-embeddings", l2_embeddings)):
            if not 0 <= value < math.inf:
                raise UserError(f"{option} is {value}; it must be a number, at least 0")
        self.l2, self.l2_embeddings = l2, l2_embeddings
        self.class_weights, self.weight = class_weights, None
        if class_weights not in (None, "balanced"):
            self.weight = torch.tensor(parse_weights(class_weights, task.classes))

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The summed loss of a batch, its size, and the statistics to log."""
        logits, target = model(**sample["net_input"]), sample["target"]  # (B, classes), (B,)
        weight = self._weights(logits)
        loss = F.cross_entropy(
            logits.float(), target, weight, ignore_index=UNSEEN_CLASS, reduction="sum"
        )
        count, size, classes = target.size(0), target.size(0), logits.size(-1)
        if not model.training:  # one more row and column for classes that training lacks
            size = int(target.ne(UNSEEN_CLASS).sum())
            target, classes = target.where(target.ne(UNSEEN_CLASS), classes), classes + 1
        logged = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": size,
            "confusion": confusion_matrix(target, logits.argmax(-1), classes),
        }
        if model.training:
            for factor, embeddings in ((self.l2, False), (self.l2_embeddings, True)):
                if factor:
                    loss = loss + count * factor / 2 * squares(model, embeddings)
        return loss, size, logged

    def _weights(self, logits: Tensor) -> Tensor | None:
        if self.class_weights == "balanced" and self.weight is None:
            if self.task.training_set is None:  # validation of a checkpoint
                return None
            self.weight = balanced(self.task.training_set, len(self.task.classes))
        if self.weight is not None:  # kept there, since every copy to a GPU synchronises
            self.weight = self.weight.to(logits.device, torch.float)
        return self.weight

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Add the logged statistics of some batches to fairseq's meters."""
        total = sum(log.get("sample_size", 0) for log in logging_outputs)
        loss = sum(log.get("loss", 0) for log in logging_outputs)
        matrices = [log["confusion"] for log in logging_outputs if "confusion" in log]
        if not matrices:
            return
        metrics.log_scalar("loss", loss / max(total, 1) / math.log(2), total, round=3)
        metrics.log_scalar_sum("_confusion", sum(matrices).double().cpu())
        for name in ("accuracy", "macro_f1"):
            metrics.log_derived(name, derived(getattr(confusion, name)))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes, including the confusion matrix."""
        return True


def derived(score: Callable[[Sequence[Sequence[float]]], float]) -> Callable[[MetersDict], float]:
    """A function that computes ``score`` from the confusion matrix in fairseq's meters."""
    return lambda meters: round(score(meters["_confusion"].sum.tolist()), 2)


def confusion_matrix(target: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Counts ``(classes, classes)``; rows are true classes."""
    cells = target * classes + predicted
    # torch.bincount would read the values and so synchronise with a GPU.
    counts = target.new_zeros(classes * classes).index_add_(0, cells, torch.ones_like(cells))
    return counts.view(classes, classes)


def squares(model: nn.Module, embeddings: bool = False) -> Tensor | int:
    """Sum of the squares of all trained weight matrices: of the embeddings, or of all others.

    Vectors, such as biases and the gains of normalisation layers, are not penalised.
    """
    return sum(
        parameter.square().sum()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
        and parameter.dim() > 1
        and ("embed_tokens" in name) == embeddings
    )


def parse_weights(text: str, classes: list[str]) -> list[float]:
    """``--class-weights`` as a list. Raises UserError for an unknown class or a bad number."""
    weights, given = dict.fromkeys(classes, 1.0), set()
    for piece in text.split(","):
        name, _, value = piece.rpartition(":")
        try:
            weight = float(value)
        except ValueError:
            weight = -1.0
        if name not in weights or not 0 <= weight < math.inf:
            raise UserError(
                f"--class-weights has '{piece}'; give balanced, or CLASS:WEIGHT with the classes "
                f"{', '.join(classes)}"
            )
        if name in given:
            raise UserError(f"--class-weights has {name} twice; leave one of them out")
        given.add(name)
        weights[name] = weight
    if not any(weights.values()):
        raise UserError("--class-weights are all 0; give at least one class a positive weight")
    return list(weights.values())


def balanced(dataset: FairseqDataset, classes: int) -> Tensor:
    """N / (classes · count) for each class of a data set; 0 for a class that does not occur."""
    base = getattr(dataset, "base", dataset)  # without additional training data
    counts = torch.from_numpy(numpy.bincount(base.labels, minlength=classes))
    return counts.sum() / (classes * counts).clamp(min=1) * (counts > 0)
