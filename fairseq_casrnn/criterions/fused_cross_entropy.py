"""fairseq's cross entropies, loss and gradient in one pass over the logits where that is possible.

fairseq goes over the logits some ten times: log softmax, gather, sum, and back.
"""

# No "from __future__ import annotations": fairseq reads the fields' types, and not as text.
import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)

from ..errors import UserError
from ..models.head import VocabularyHead
from ..recurrence import cpp
from ..recurrence.eager import keeps_graph


def fits(model, net_output, reduce: bool) -> bool:
    """Whether the compiled loss can stand for fairseq's: for float logits of ours, on the CPU."""
    decoder = getattr(model, "decoder", None)
    if not reduce or not isinstance(decoder, VocabularyHead) or cpp.extension()[0] is None:
        return False
    logits = net_output[0]
    return (
        decoder.adaptive_softmax is None
        and logits.device.type == "cpu"
        and logits.dtype in (torch.float32, torch.float64)
    )


def smoothed_cross_entropy(logits, target, smoothing: float, pad: int):
    """Sums over all tokens of the loss with label smoothing, and of the loss without.

    Args:
        logits: ``(*, V)``.
        target: of the same shape without the last; tokens ``pad`` count for nothing.
        smoothing: probability shared by all other tokens.

    Only the first has a gradient.
    """
    logits = logits.reshape(-1, logits.size(-1))
    return _CrossEntropy.apply(logits, target.reshape(-1), smoothing, pad)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, smoothing, pad):
        loss, plain, found = cpp.extension()[0].cross_entropy(
            logits.contiguous(), target.contiguous(), smoothing, pad, ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(found)
        plain = logits.new_tensor(plain)
        ctx.mark_non_differentiable(plain)
        return logits.new_tensor(loss), plain

    @staticmethod
    def backward(ctx, grad, _):
        if torch.is_grad_enabled():  # create_graph=True; see eager.refuse_create_graph
            raise UserError(
                "the fused criterions have no second derivatives; use cross_entropy or "
                "label_smoothed_cross_entropy for them"
            )
        (found,) = ctx.saved_tensors
        if grad == 1 and not keeps_graph():  # nearly always, and it saves a pass
            return found, None, None, None
        return found * grad, None, None, None


@register_criterion("fused_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class FusedCrossEntropy(CrossEntropyCriterion):
    """``cross_entropy``."""

    def compute_loss(self, model, net_output, sample, reduce=True):
        """As that of the base."""
        if not fits(model, net_output, reduce):
            return super().compute_loss(model, net_output, sample, reduce)
        target = model.get_targets(sample, net_output)
        loss, _ = smoothed_cross_entropy(net_output[0], target, 0.0, self.padding_idx)
        return loss, loss


@register_criterion(
    "fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class FusedLabelSmoothedCrossEntropy(LabelSmoothedCrossEntropyCriterion):
    """``label_smoothed_cross_entropy``."""

    def compute_loss(self, model, net_output, sample, reduce=True):
        """As that of the base."""
        if self.ignore_prefix_size > 0 or not fits(model, net_output, reduce):
            return super().compute_loss(model, net_output, sample, reduce)
        target = model.get_targets(sample, net_output)
        return smoothed_cross_entropy(net_output[0], target, self.eps, self.padding_idx)
