"""From a decoder's features to the vocabulary: a full, a tied or an adaptive softmax."""

from __future__ import annotations

from fairseq.modules import AdaptiveSoftmax
from torch import Tensor, nn

from ..errors import UserError
from ..layers import RecurrentStack
from ..recurrence.cross_entropy import can_fuse, cross_entropy
from ..recurrence.inputs import LossSpec
from ..recurrence.products import linear, log_probs


def uniform_linear(
    in_features: int, out_features: int, bias: bool = True, kind: type[nn.Linear] = nn.Linear
) -> nn.Linear:
    """A linear layer uniform in ±0.1."""
    layer = kind(in_features, out_features, bias)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1)
    return layer


class Weights(nn.Linear):
    """A linear layer whose weight others use by themselves.

    ``torch.ao.quantization`` replaces layers of exactly the type ``nn.Linear``, and not this one.
    """


class VocabularyHead:
    """What fairseq asks of a decoder about its output; a mixin, before fairseq's own decoder.

    The decoder has the recurrent stack ``rnn``, on whose engine the output layer is computed.
    """

    rnn: RecurrentStack
    embed_tokens: nn.Embedding

    def build_head(self, size: int, features: int, shared: bool, cutoffs, dropout: float) -> None:
        """Make the output layer.

        Args:
            size: of the vocabulary.
            features: of the output embedding.
            shared: the output embedding is ``self.embed_tokens``.
            cutoffs: of the adaptive softmax, or None for a full one.
            dropout: of the adaptive softmax's clusters.
        """
        self.adaptive_softmax = self.fc_out = None
        if cutoffs is not None:
            self.adaptive_softmax = AdaptiveSoftmax(size, features, cutoffs, dropout=dropout)
        elif not shared:
            self.fc_out = uniform_linear(features, size)

    @property
    def vocabulary(self) -> tuple[Tensor, Tensor | None] | None:
        """Weight ``(V, out_embed_dim)`` and bias ``(V,)`` or None, of a full softmax.

        None for an output layer that has been replaced, by one with integer weights say.
        """
        if self.fc_out is None:
            return self.embed_tokens.weight, None
        if not isinstance(self.fc_out, nn.Linear):
            return None
        return self.fc_out.weight, self.fc_out.bias

    def output_layer(self, features, **unused):
        """Features ``(B, T, out_embed_dim)`` to logits ``(B, T, V)``.

        An adaptive softmax works on the features themselves.
        """
        if self.adaptive_softmax is not None:
            return features.clone()  # fairseq's generator divides in place what it gets
        if self.vocabulary is None:
            return self.fc_out(features)
        return linear(features, *self.vocabulary, engine=self.rnn.engine)

    @property
    def can_fuse_loss(self) -> bool:
        """Whether :meth:`loss` may be called."""
        if self.adaptive_softmax is not None or self.vocabulary is None:
            return False
        return can_fuse(self.vocabulary[0], self.rnn.engine)

    def loss(self, features, loss_spec: LossSpec):
        """The loss of features ``(B, T, out_embed_dim)``, and the loss without smoothing."""
        assert self.vocabulary is not None  # see can_fuse_loss
        weight, bias = self.vocabulary
        return cross_entropy(features, weight, bias, loss_spec, self.rnn.engine)

    def log_probs(self, features):
        """Log-probabilities ``(N, V)`` of features ``(N, out_embed_dim)``, in one pass.

        Returns:
            them and whether there is NaN among them; or None where only the other way is open:
            :meth:`output_layer` and :meth:`get_normalized_probs`.
        """
        if self.adaptive_softmax is not None or self.vocabulary is None:
            return None
        return log_probs(features, *self.vocabulary, engine=self.rnn.engine)

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        """(Log-)probabilities ``(B, T, V)``, as fairseq's criterions and generators ask for them.

        Raises:
            UserError: a criterion that cannot train an adaptive softmax.
        """
        if self.adaptive_softmax is not None and self.training:
            raise UserError("--adaptive-softmax-cutoff needs --criterion adaptive_loss")
        return super().get_normalized_probs(net_output, log_probs, sample)
