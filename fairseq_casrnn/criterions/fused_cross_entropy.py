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

from ..next_words import is_usual
from ..recurrence.cross_entropy import Wanted


def fits(model, reduce: bool) -> bool:
    """Whether the model gives the loss itself: one of ours, on the CPU, in single or double."""
    return reduce and is_usual(model) and model.decoder.can_fuse_loss


def asking(sample: dict, smoothing: float, pad: int) -> dict:
    """``sample`` with a net_input that asks the model for its loss instead of its logits.

    In the forward pass, where data-parallel wrappers see it.
    """
    wanted = Wanted(sample["target"], smoothing, pad)
    return {**sample, "net_input": {**sample["net_input"], "wanted": wanted}}


@register_criterion("fused_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class FusedCrossEntropy(CrossEntropyCriterion):
    """``cross_entropy``."""

    def forward(self, model, sample, reduce=True):
        """As that of the base."""
        if fits(model, reduce):
            sample = asking(sample, 0.0, self.padding_idx)
        return super().forward(model, sample, reduce)

    def compute_loss(self, model, net_output, sample, reduce=True):
        """As that of the base."""
        if "wanted" not in sample["net_input"]:
            return super().compute_loss(model, net_output, sample, reduce)
        loss, _ = net_output[0]
        return loss, loss


@register_criterion(
    "fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class FusedLabelSmoothedCrossEntropy(LabelSmoothedCrossEntropyCriterion):
    """``label_smoothed_cross_entropy``."""

    def forward(self, model, sample, reduce=True):
        """As that of the base."""
        whole = self.ignore_prefix_size == 0 and not self.report_accuracy  # that needs logits
        if whole and fits(model, reduce):
            sample = asking(sample, self.eps, self.padding_idx)
        return super().forward(model, sample, reduce)

    def compute_loss(self, model, net_output, sample, reduce=True):
        """As that of the base."""
        if "wanted" not in sample["net_input"]:
            return super().compute_loss(model, net_output, sample, reduce)
        return net_output[0]
