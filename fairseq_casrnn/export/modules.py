"""Trained models as modules that torch.export can trace."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from fairseq_casrnn.layers.sequences import trusted


class ClassifierModule(nn.Module):
    """Probabilities ``(B, classes)`` of sentences, or of pairs of sentences."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, pair_tokens: Tensor | None = None) -> Tensor:
        """tokens, pair_tokens: ``(B, T)``, each sentence ended by </s>."""
        return self.model(tokens, pair_tokens).softmax(-1)


class TaggerModule(nn.Module):
    """Best tags ``(B, T)``, of a CRF under constraints, and emissions ``(B, T, K)``."""

    def __init__(self, model, constraints=None):
        super().__init__()
        self.model = model
        self.crf = None if model.crf is None else model.crf.constrained(constraints)

    def forward(self, tokens: Tensor, spelling: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """tokens: ``(B, T + 1)``, each sentence ended by </s>; spelling: ``(B, T, W)``."""
        emissions, _ = self.model(tokens, spelling)
        if self.crf is None:
            return emissions.argmax(-1), emissions
        padding = self.model.encoder.embed_tokens.padding_idx
        real = tokens[:, 1:].ne(padding)  # a word is real where another token follows it
        return viterbi(self.crf, emissions, real), emissions


class LanguageModelModule(nn.Module):
    """Log-probabilities ``(B, T, V)`` of the next words, and the final state."""

    def __init__(self, model):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens: Tensor, h: Tensor, c: Tensor | None = None):
        """tokens: ``(B, T)``; h, c: ``(L, B, H)``, the initial state."""
        decoder = self.decoder
        state = (h, c) if decoder.rnn.has_cell else h
        ids = tokens.t().contiguous()
        x, state = decoder.rnn(decoder.embed_tokens(ids), state, tokens=ids)
        if decoder.additional_fc is not None:
            x = decoder.additional_fc(x)
        log_probs = decoder.output_layer(x.transpose(0, 1)).log_softmax(-1)
        return (log_probs, *state) if decoder.rnn.has_cell else (log_probs, state)


class EncoderModule(nn.Module):
    """The decoder's inputs for source sentences: keys, values, mask, and its initial state."""

    def __init__(self, model):
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, tokens: Tensor):
        """tokens: ``(B, S)``, each sentence ended by </s>."""
        encoder, decoder = self.encoder, self.decoder
        mask = tokens.eq(encoder.padding_idx)
        lengths = trusted((~mask).sum(1).clamp(min=1))
        x = encoder.embed_tokens(tokens).transpose(0, 1)
        output, state = encoder.rnn(x, lengths=lengths, tokens=tokens.t())
        names, state = (
            ("encoder_hidden", "encoder_cell"),
            state if encoder.rnn.has_cell else [state],
        )
        final = {
            name: encoder.concat_directions(part) for name, part in zip(names, state, strict=False)
        }
        state = decoder.initial_state(final)
        keys, values = decoder.attention.project(output, decoder.rnn.engine)
        return (keys, values, mask, *(state if decoder.rnn.has_cell else (state,)))


class DecoderStepModule(nn.Module):
    """Log-probabilities ``(N, V)`` of the next words of N hypotheses, and their new state."""

    def __init__(self, model):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens, keys, values, mask, feed, h, c=None):
        """One step.

        Args:
            tokens: ``(N,)``, the previous words.
            keys, values: ``(N, S, H)``.
            mask: ``(N, S)``.
            feed: ``(N, H)``, the previous output; zeros in the first step.
            h, c: ``(L, N, H)``.
        """
        decoder = self.decoder
        cache = {"keys": keys, "values": values, "mask": mask, "feed": feed, "hidden": h, "cell": c}
        x = decoder.embed(tokens.unsqueeze(1))[0]
        out, alpha, cache = decoder.eager_step(x, cache)
        features = out if decoder.additional_fc is None else decoder.additional_fc(out)
        log_probs = decoder.output_layer(features.unsqueeze(1)).squeeze(1).log_softmax(-1)
        new = (log_probs, alpha, out, cache["hidden"])
        return new if c is None else (*new, cache["cell"])


def viterbi(crf, emissions: Tensor, real: Tensor) -> Tensor:
    """The most probable tags ``(B, T)``; tags at padding are undefined.

    Args:
        crf: :class:`..models.tagger_parts.TagCRF`.
        emissions: ``(B, T, K)``.
        real: ``(B, T)``, False at padding.
    """
    emissions, real = emissions.transpose(0, 1), real.t().unsqueeze(-1)  # (T, B, K), (T, B, 1)
    same = torch.arange(emissions.size(-1)).expand_as(emissions[0])

    def forward(best, step):
        emission, is_word = step
        scores, previous = (best.unsqueeze(2) + crf.transitions).max(1)
        best = torch.where(is_word, scores + emission, best)
        return best, torch.where(is_word, previous, same)

    def backward(tag, previous):
        tag = previous.gather(1, tag)
        return tag, tag.clone()

    # An extra step of padding: scan needs at least one, also for sentences of one word.
    emission = torch.cat([emissions[1:], torch.zeros_like(emissions[:1])])
    is_word = torch.cat([real[1:], torch.zeros_like(real[:1])])
    best, history = scan(forward, crf.start_transitions + emissions[0], (emission, is_word))
    last = (best + crf.end_transitions).argmax(1, keepdim=True)
    _, tags = scan(backward, last, history.flip(0))
    return tags.flip(0).squeeze(-1).t()
