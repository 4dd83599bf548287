"""The output layer of a decoder: a full, a tied or an adaptive softmax over the vocabulary."""

from __future__ import annotations

from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor, nn

from ..errors import UserError
from ..layers import RecurrentStack
from ..recurrence.cross_entropy import can_fuse, cross_entropy
from ..recurrence.inputs import LossSpec
from ..recurrence.next_words import NextWords
from ..recurrence.products import linear, next_words
from .config import dropout_option


def uniform_linear(
    in_features: int, out_features: int, bias: bool = True, kind: type[nn.Linear] = nn.Linear
) -> nn.Linear:
    """A linear layer initialised uniformly in ±0.1."""
    layer = kind(in_features, out_features, bias)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1)
    return layer


class UnquantizedLinear(nn.Linear):
    """A linear layer whose weight is also used outside of its forward.

    ``torch.ao.quantization`` replaces layers of exactly the type ``nn.Linear``, so not this one.
    """


class VocabularyHead:
    """The output layer of a decoder: a mixin that comes before fairseq's decoder in the bases.

    The output layer is computed on the engine of the decoder's recurrent stack ``rnn``.
    """

    rnn: RecurrentStack
    embed_tokens: nn.Embedding
    fc_out: Any
    training: bool

    def build_head(self, cfg: FairseqDataclass, size: int, features: int, shared: bool) -> None:
        """Make the output layer and, if the sizes differ, ``additional_fc`` before it.

        Args:
            cfg: the options of the model.
            size: of the vocabulary.
            features: size of the output embedding.
            shared: whether the output embedding is ``self.embed_tokens``.

        Raises:
            UserError: invalid cutoffs of the adaptive softmax.
        """
        hidden = self.rnn.hidden_size
        self.additional_fc = uniform_linear(hidden, features) if hidden != features else None
        self.adaptive_softmax = self.fc_out = None
        cutoffs = parse_cutoffs(cfg.adaptive_softmax_cutoff, size)
        if cutoffs is not None:
            dropout = dropout_option(cfg, "decoder_dropout_out")
            self.adaptive_softmax = AdaptiveSoftmax(size, features, cutoffs, dropout=dropout)
        elif not shared:
            self.fc_out = uniform_linear(features, size)

    @property
    def vocabulary(self) -> tuple[Tensor, Tensor | None] | None:
        """Weight ``(V, out_embed_dim)`` and bias ``(V,)`` or None of a full softmax.

        None if the output layer has been replaced, for instance by quantisation, or has hooks.
        """
        layer = self.fc_out
        if layer is None:
            return self.embed_tokens.weight, None
        if getattr(type(layer), "forward", None) is not nn.Linear.forward:
            return None
        if layer._forward_hooks or layer._forward_pre_hooks:
            return None
        return layer.weight, layer.bias

    @property
    def linear_vocabulary(self) -> tuple[Tensor, Tensor | None] | None:
        """:attr:`vocabulary` if the logits are features · weight + bias and nothing else.

        Only then can :meth:`loss` and :meth:`next_words` do without a table of logits; where it is
        None, fairseq uses :meth:`output_layer`.
        """
        return self.vocabulary if self.adaptive_softmax is None else None

    def output_layer(self, features: Tensor, **unused: Any) -> Tensor:
        """Logits ``(B, T, V)`` of features ``(B, T, out_embed_dim)``.

        With an adaptive softmax, a copy of the features.
        """
        if self.adaptive_softmax is not None:
            return features.clone()  # fairseq's generator divides its result in place
        if self.vocabulary is None:
            return self.fc_out(features)
        return linear(features, *self.vocabulary, engine=self.rnn.engine)

    @property
    def can_fuse_loss(self) -> bool:
        """Whether :meth:`loss` may be called."""
        vocabulary = self.linear_vocabulary
        return vocabulary is not None and can_fuse(vocabulary[0], self.rnn.engine)

    def loss(self, features: Tensor, loss_spec: LossSpec) -> tuple[Tensor, Tensor]:
        """Loss of features ``(B, T, out_embed_dim)``, with and without label smoothing."""
        assert self.linear_vocabulary is not None  # see can_fuse_loss
        weight, bias = self.linear_vocabulary
        return cross_entropy(features, weight, bias, loss_spec, self.rnn.engine)

    def next_words(self, rows: int, steps: int) -> NextWords | None:
        """Search for the best next words of up to ``rows`` hypotheses; None if not supported."""
        if (vocabulary := self.linear_vocabulary) is None:
            return None
        return next_words(*vocabulary, rows, steps, engine=self.rnn.engine)

    def get_normalized_probs(
        self,
        net_output: tuple[Tensor, dict[str, Any]],
        log_probs: bool,
        sample: dict[str, Any] | None = None,
    ) -> Tensor:
        """(Log-)probabilities ``(B, T, V)``, for fairseq's criterions and generators.

        Raises:
            UserError: a criterion that cannot train an adaptive softmax.
        """
        if self.adaptive_softmax is not None and self.training:
            raise UserError("--adaptive-softmax-cutoff needs --criterion adaptive_loss")
        return super().get_normalized_probs(net_output, log_probs, sample)  # type: ignore[misc]


def parse_cutoffs(text: str | None, size: int) -> list[int] | None:
    """``--adaptive-softmax-cutoff`` as a list.

    Raises:
        UserError: not a list of increasing numbers below the vocabulary size.
    """
    if text is None:
        return None
    try:
        values = [int(piece) for piece in str(text).strip("[]").split(",")]
    except ValueError:
        values = []
    if not values or sorted(set(values)) != values or values[0] < 1 or values[-1] >= size:
        raise UserError(
            f"--adaptive-softmax-cutoff is {text!r}; it must be increasing whole numbers below the "
            f"vocabulary size, {size}"
        )
    return values
