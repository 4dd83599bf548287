"""fairseq's cross entropies fused with the output layer, from features to gradients in one pass.

fairseq computes a tensor of all logits and makes about ten passes over it: log softmax, gather,
sum, and their backwards.
"""

# No "from __future__ import annotations": fairseq needs the fields' types as objects.
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models import BaseFairseqModel
from torch import Tensor

from ..models.fast_path import supports_fused_loss
from ..recurrence.inputs import LossSpec


class FusedLoss:
    """A mixin, to be listed before fairseq's criterion among the base classes.

    The model's forward computes the loss, so that data-parallel wrappers see all parameters in
    use. Models that do not support this, and subclasses that override ``compute_loss``, get
    logits as in fairseq.
    """

    smoothing = 0.0
    padding_idx: int

    def needs_only_loss(self) -> bool:
        """Whether this criterion uses nothing but the loss."""
        return type(self).compute_loss is FusedLoss.compute_loss

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """As in fairseq's criterion."""
        if reduce and self.needs_only_loss() and supports_fused_loss(model):
            loss_spec = LossSpec(sample["target"], self.smoothing, self.padding_idx)
            sample = {**sample, "net_input": {**sample["net_input"], "loss_spec": loss_spec}}
        return super().forward(model, sample, reduce)  # type: ignore[misc]

    def compute_loss(
        self,
        model: BaseFairseqModel,
        net_output: tuple[Any, dict[str, Any]],
        sample: dict[str, Any],
        reduce: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """As in fairseq's criterion."""
        if "loss_spec" not in sample["net_input"]:
            return super().compute_loss(model, net_output, sample, reduce)  # type: ignore[misc]
        return net_output[0]


@register_criterion("fused_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class FusedCrossEntropy(FusedLoss, CrossEntropyCriterion):
    """fairseq's ``cross_entropy``, fused."""


@register_criterion(
    "fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class FusedLabelSmoothedCrossEntropy(FusedLoss, LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy``, fused."""

    @property
    def smoothing(self) -> float:  # type: ignore[override] # a constant in the mixin
        """Probability mass that is spread over the vocabulary."""
        return self.eps

    def needs_only_loss(self) -> bool:
        """Also False with options or overrides that need the logits."""
        stock = LabelSmoothedCrossEntropyCriterion.get_lprobs_and_target
        return (
            super().needs_only_loss()
            and self.ignore_prefix_size == 0
            and not self.report_accuracy
            and type(self).get_lprobs_and_target is stock
        )
