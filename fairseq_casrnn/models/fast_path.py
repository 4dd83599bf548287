"""Whether a model is one of this package, unmodified, so that a faster path is equivalent.

The checks compare exact classes and methods: a subclass may compute something else.
"""

from __future__ import annotations

from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel, FairseqLanguageModel

from .decoder import RecurrentDecoder
from .encoder import RecurrentEncoder
from .language_decoder import RecurrentLanguageDecoder

DECODERS = (RecurrentDecoder, RecurrentLanguageDecoder)
FORWARDS = (FairseqEncoderDecoderModel.forward, FairseqLanguageModel.forward)


def has_stock_forward(model: BaseFairseqModel) -> bool:
    """Whether ``model``, wrapped or not, turns features into probabilities as this package does."""
    if type(getattr(model, "decoder", None)) not in DECODERS:
        return False
    method = getattr(model.get_normalized_probs, "__func__", None)
    return method is BaseFairseqModel.get_normalized_probs


def supports_fused_loss(model: BaseFairseqModel) -> bool:
    """Whether the forward of ``model``, wrapped or not, can return its loss instead of logits."""
    if not has_stock_forward(model):
        return False
    unwrapped = model.get_targets.__self__
    return (
        type(unwrapped).forward in FORWARDS
        and type(unwrapped).get_targets is BaseFairseqModel.get_targets
        and type(getattr(unwrapped, "encoder", None)) in (RecurrentEncoder, type(None))
        and unwrapped.decoder.can_fuse_loss
    )
