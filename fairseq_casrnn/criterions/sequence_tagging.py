"""The loss of a tagger; in validation also accuracy and precision, recall and F1 of spans."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from ..data.datasets import UNSEEN_TAG
from ..errors import UserError
from ..evaluation.tags import COUNTS, counts, scores


@dataclass
class SequenceTaggingCriterionConfig(FairseqDataclass):
    """No options."""


@register_criterion("sequence_tagging", dataclass=SequenceTaggingCriterionConfig)
class SequenceTaggingCriterion(FairseqCriterion):
    """-log p of the tags of a sentence under the CRF, or of each word under the softmax.

    Validation also finds the best tags and logs accuracy and, if the tags mark spans, precision,
    recall and F1, from counts over the whole set.

    Raises:
        UserError: a task without tags.
    """

    def __init__(self, task: FairseqTask):
        super().__init__(task)
        if not hasattr(task, "characters"):
            raise UserError("--criterion sequence_tagging needs --task sequence_tagging")

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The summed loss of a batch, its number of words, and the statistics to log."""
        target, size = sample["target"], sample["ntokens"]
        if not model.training:  # sentences with tags that training lacks do not count
            unseen = target.eq(UNSEEN_TAG).any(1, keepdim=True)
            size -= int((target.ge(0) & unseen).sum()) + int(target.eq(UNSEEN_TAG).sum())
            target = target.masked_fill(unseen, -1)
        emissions, loss = model(**sample["net_input"], target=target)
        logged = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": size,
        }
        if not model.training:
            lengths, names = sample["lengths"], self.task.classes
            rows = model.best(emissions, lengths, self.task.constraints)
            best = [[names[tag] for tag in row] for row in rows]
            rows = zip(sample["target"], lengths.tolist(), strict=True)
            gold = [self.task.tag_names(row[:length]) for row, length in rows]
            found = counts(gold, best, self.task.are_spans)
            # float64, as fairseq sums all statistics in one tensor
            logged["counts"] = torch.tensor(found, device=target.device, dtype=torch.float64)
        return loss, size, logged

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Add the logged statistics of some batches to fairseq's meters."""
        total = sum(log.get("sample_size", 0) for log in logging_outputs)
        loss = sum(log.get("loss", 0) for log in logging_outputs)
        if not any(log.get("ntokens") for log in logging_outputs):
            return
        metrics.log_scalar("loss", loss / max(total, 1) / math.log(2), total, round=3)
        found = [log["counts"] for log in logging_outputs if "counts" in log]
        if not found:
            return
        metrics.log_scalar_sum("_tags", sum(found).cpu())
        total_counts = dict(zip(COUNTS, sum(found).tolist(), strict=True))
        for name in scores(total_counts):
            metrics.log_derived(name, derived(name))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes, including the counts."""
        return True


def derived(name: str) -> Callable[[MetersDict], float]:
    """A function that computes a score from the summed counts in fairseq's meters."""

    def score(meters: MetersDict) -> float:
        total = dict(zip(COUNTS, meters["_tags"].sum.tolist(), strict=True))
        return round(scores(total).get(name, 0.0), 2)

    return score
