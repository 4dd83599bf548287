"""Whether a model computes what this package's models compute, so that a short cut may be taken.

By exact classes and methods, for a subclass may compute something else.
"""

from __future__ import annotations

from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel, FairseqLanguageModel

from .decoder import RecurrentDecoder
from .encoder import RecurrentEncoder
from .language_model import RecurrentLanguageDecoder

DECODERS = (RecurrentDecoder, RecurrentLanguageDecoder)
FORWARDS = (FairseqEncoderDecoderModel.forward, FairseqLanguageModel.forward)


def has_stock_forward(model) -> bool:
    """Whether ``model``, wrapped or not, has this package's way from features to probabilities."""
    if type(getattr(model, "decoder", None)) not in DECODERS:
        return False
    method = getattr(model.get_normalized_probs, "__func__", None)
    return method is BaseFairseqModel.get_normalized_probs


def supports_fused_loss(model) -> bool:
    """Whether ``model``, wrapped or not, can compute its loss instead of logits."""
    if not has_stock_forward(model):
        return False
    inner = model.get_targets.__self__  # of the wrapped model
    return (
        type(inner).forward in FORWARDS
        and type(inner).get_targets is BaseFairseqModel.get_targets
        and type(getattr(inner, "encoder", None)) in (RecurrentEncoder, type(None))
        and inner.decoder.can_fuse_loss
    )
