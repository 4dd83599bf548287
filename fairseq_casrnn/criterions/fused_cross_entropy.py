"""fairseq's cross entropies, from a decoder's features to the gradients in one go where possible.

fairseq makes a table of all logits and goes over it some ten times: log softmax, gather, sum, and
back.
"""

# No "from __future__ import annotations": fairseq reads the fields' types, and not as text.
from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)

from ..models.fast_path import supports_fused_loss
from ..recurrence.inputs import LossSpec


class Fused:
    """A mixin, before fairseq's criterion.

    The loss is made inside the model's forward, so that data-parallel wrappers see all of its
    parameters used. Subclasses with a ``compute_loss`` of their own get logits, as from fairseq's.
    """

    smoothing = 0.0

    def needs_only_loss(self) -> bool:
        """Whether nothing but the loss is asked for."""
        return type(self).compute_loss is Fused.compute_loss

    def forward(self, model, sample, reduce=True):
        """As that of the base."""
        if reduce and self.needs_only_loss() and supports_fused_loss(model):
            loss_spec = LossSpec(sample["target"], self.smoothing, self.padding_idx)
            sample = {**sample, "net_input": {**sample["net_input"], "loss_spec": loss_spec}}
        return super().forward(model, sample, reduce)

    def compute_loss(self, model, net_output, sample, reduce=True):
        """As that of the base."""
        if "loss_spec" not in sample["net_input"]:
            return super().compute_loss(model, net_output, sample, reduce)
        return net_output[0]


@register_criterion("fused_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class FusedCrossEntropy(Fused, CrossEntropyCriterion):
    """``cross_entropy``."""


@register_criterion(
    "fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class FusedLabelSmoothedCrossEntropy(Fused, LabelSmoothedCrossEntropyCriterion):
    """``label_smoothed_cross_entropy``."""

    @property
    def smoothing(self) -> float:  # type: ignore[override] # of the base it is a constant
        """Probability shared by all tokens but the target."""
        return self.eps

    def needs_only_loss(self) -> bool:
        """As that of the base."""
        usual = LabelSmoothedCrossEntropyCriterion.get_lprobs_and_target
        return (
            super().needs_only_loss()
            and self.ignore_prefix_size == 0
            and not self.report_accuracy
            and type(self).get_lprobs_and_target is usual
        )
