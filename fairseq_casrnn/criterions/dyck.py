"""Cross entropy that also logs the accuracy of closing brackets in validation."""

# No "from __future__ import annotations": fairseq needs the fields' types as objects.
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from ..errors import UserError
from ..evaluation.brackets import closing_tokens, count_right, worst


@register_criterion("dyck_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class DyckCrossEntropy(CrossEntropyCriterion):
    """``cross_entropy`` for strings of brackets; validation logs ``wcpa`` (evaluation.brackets).

    Batches must consist of whole strings (``--sentence-reset``, or ``--sample-break-mode eos``).

    Raises:
        UserError: batches of partial strings, or tokens that are not brackets.
    """

    counts: tuple[np.ndarray, np.ndarray] | None

    def __init__(self, task: FairseqTask, sentence_avg: bool):
        super().__init__(task, sentence_avg)
        check_whole_strings(task)
        self.closing = closing_tokens(task.source_dictionary)

    def compute_loss(
        self,
        model: BaseFairseqModel,
        net_output: tuple[Any, dict[str, Any]],
        sample: dict[str, Any],
        reduce: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """As in the base class; in validation, also counts predictions of closing brackets."""
        if not model.training:
            targets = model.get_targets(sample, net_output).cpu()
            self.counts = count_right(net_output[0], targets, self.closing)
        return super().compute_loss(model, net_output, sample, reduce)

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """As in the base class; also logs the counts of :meth:`compute_loss`."""
        self.counts = None
        loss, sample_size, logging_output = super().forward(model, sample, reduce)
        if self.counts is not None:
            right, seen = self.counts
            occurring = np.flatnonzero(seen)  # distances
            logging_output["closed"] = [(int(d), int(right[d]), int(seen[d])) for d in occurring]
        return loss, sample_size, logging_output

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Aggregate the logs of some batches; counts become one hidden sum per distance."""
        CrossEntropyCriterion.reduce_metrics(logging_outputs)
        all_counts = [counts for log in logging_outputs for counts in log.get("closed", ())]
        for distance, right, seen in all_counts:
            metrics.log_scalar_sum(f"_right_{distance}", right)
            metrics.log_scalar_sum(f"_seen_{distance}", seen)
        if all_counts:
            metrics.log_derived("wcpa", _wcpa)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """No: the distances differ between batches."""
        return False


def check_whole_strings(task: FairseqTask) -> None:
    """Raise UserError for a task whose batches begin in the middle of strings."""
    options = getattr(task, "args", None)
    if options is not None and hasattr(options, "sentence_reset"):
        whole, remedy = options.sentence_reset, "--sentence-reset"
    else:
        whole = str(getattr(options, "sample_break_mode", "eos")) == "eos"
        remedy = "--sample-break-mode eos"
    if not whole:
        raise UserError(f"--criterion dyck_cross_entropy needs whole strings; give {remedy}")


def _wcpa(meters: MetersDict) -> float:
    """WCPA from the sums over all batches in ``meters``."""
    prefix = "_seen_"
    distances = [int(name.removeprefix(prefix)) for name in meters if name.startswith(prefix)]
    right, seen = np.zeros(max(distances) + 1), np.zeros(max(distances) + 1)
    for distance in distances:
        right[distance] = meters[f"_right_{distance}"].sum
        seen[distance] = meters[f"_seen_{distance}"].sum
    value = worst(right, seen)[0]
    return value if math.isnan(value) else round(value, 4)
