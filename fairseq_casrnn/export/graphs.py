"""Trained models as functions of tensors, which torch.export can follow.

A translation model becomes two: the encoder, and one step of the decoder. Every other model is one.
All batches are padded on the right with the dictionary's padding symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from ..errors import UserError
from ..layers.sequences import trusted

# Lengths, </s> included, of the sentences by which a graph is traced, and by which it is checked.
EXAMPLE, PROBE = (5, 6, 3), (1, 7)


@dataclass
class Graph:
    """A function of tensors.

    Attributes:
        module: computes it.
        axes: for each input, the names of its axes whose size may differ from call to call.
        outputs: names of what it returns.
        inputs: an example of each input, by name, in order.
        probe: another one, of other sizes.
    """

    module: nn.Module
    axes: dict[str, dict[int, str]]
    outputs: tuple[str, ...]
    inputs: dict[str, Tensor]
    probe: dict[str, Tensor]


class Classify(nn.Module):
    """Probabilities ``(B, classes)`` of sentences (B, T), or of pairs of them."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, pair_tokens: Tensor | None = None) -> Tensor:
        """tokens, pair_tokens: ``(B, T)``, each sentence ended by </s>."""
        return self.model(tokens, pair_tokens).softmax(-1)


class Tag(nn.Module):
    """Tags ``(B, T)``, a CRF's within the constraints, and their scores ``(B, T, K)``."""

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


class Predict(nn.Module):
    """Log-probabilities ``(B, T, V)`` of the next words, and the state after the last."""

    def __init__(self, model):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens: Tensor, h: Tensor, c: Tensor | None = None):
        """tokens: ``(B, T)``; h, c: ``(L, B, H)``, the state before them."""
        decoder = self.decoder
        state = (h, c) if decoder.rnn.has_cell else h
        ids = tokens.t().contiguous()
        x, state = decoder.rnn(decoder.embed_tokens(ids), state, tokens=ids)
        if decoder.additional_fc is not None:
            x = decoder.additional_fc(x)
        log_probs = decoder.output_layer(x.transpose(0, 1)).log_softmax(-1)
        return (log_probs, *state) if decoder.rnn.has_cell else (log_probs, state)


class Encode(nn.Module):
    """What the decoder reads of source sentences: keys, values, mask, and its first state."""

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
        final = {name: encoder.side_by_side(part) for name, part in zip(names, state, strict=False)}
        state = decoder.initial_state(final)
        keys, values = decoder.attention.project(output, decoder.rnn.engine)
        return (keys, values, mask, *(state if decoder.rnn.has_cell else (state,)))


class DecodeStep(nn.Module):
    """Log-probabilities ``(N, V)`` of the next words of N hypotheses, and their new state."""

    def __init__(self, model):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens, keys, values, mask, feed, h, c=None):
        """tokens: ``(N,)``, the last words; keys, values: ``(N, S, H)``; mask: ``(N, S)``;
        feed: ``(N, H)``, the output before, zeros at first; h, c: ``(L, N, H)``.
        """
        decoder = self.decoder
        kept = {"keys": keys, "values": values, "mask": mask, "feed": feed, "hidden": h, "cell": c}
        x = decoder.embed(tokens.unsqueeze(1))[0]
        out, alpha, kept = decoder.plain_step(x, kept)
        features = out if decoder.additional_fc is None else decoder.additional_fc(out)
        log_probs = decoder.output_layer(features.unsqueeze(1)).squeeze(1).log_softmax(-1)
        new = (log_probs, alpha, out, kept["hidden"])
        return new if c is None else (*new, kept["cell"])


def viterbi(crf, emissions: Tensor, real: Tensor) -> Tensor:
    """The most probable tags ``(B, T)``; what stands at padding means nothing.

    Args:
        crf: :class:`..models.tagger_parts.TagCRF`.
        emissions: ``(B, T, K)``.
        real: ``(B, T)``, where there is a word.
    """
    emissions, real = emissions.transpose(0, 1), real.t().unsqueeze(-1)  # (T, B, K), (T, B, 1)
    same = torch.arange(emissions.size(-1)).expand_as(emissions[0])

    def forward(best, step):
        emission, is_word = step
        scores, before = (best.unsqueeze(2) + crf.transitions).max(1)
        best = torch.where(is_word, scores + emission, best)
        return best, torch.where(is_word, before, same)

    def backward(tag, before):
        tag = before.gather(1, tag)
        return tag, tag.clone()

    # One step more, of padding, so that there is one where sentences have one word.
    emission = torch.cat([emissions[1:], torch.zeros_like(emissions[:1])])
    is_word = torch.cat([real[1:], torch.zeros_like(real[:1])])
    best, history = scan(forward, crf.start_transitions + emissions[0], (emission, is_word))
    last = (best + crf.end_transitions).argmax(1, keepdim=True)
    _, tags = scan(backward, last, history.flip(0))
    return tags.flip(0).squeeze(-1).t()


def graphs(model, task) -> dict[str, Graph]:
    """The graphs of a model in ``eval()`` mode, by name.

    Args:
        model: of this package; its layers are put on the engine ``reference``.
        task: its task.

    Raises:
        UserError: a model of another kind, or with an adaptive softmax.
    """
    from ..models.language_model import RecurrentLanguageModel
    from ..models.sentence_bodies import TransformerBody
    from ..models.sentence_encoder import SentenceClassifier
    from ..models.tagger import Tagger
    from ..models.translation import RecurrentTranslationModel

    kinds = {
        RecurrentTranslationModel: translation,
        RecurrentLanguageModel: language_model,
        SentenceClassifier: classifier,
        Tagger: tagger,
    }
    make = next((make for kind, make in kinds.items() if isinstance(model, kind)), None)
    if make is None:
        raise UserError(
            f"{type(model).__name__} cannot be exported; give a translation model, language model, "
            "sentence encoder or tagger of this package"
        )
    if any(isinstance(module, TransformerBody) for module in model.modules()):
        raise UserError("a transformer's sentence encoder cannot be exported; give a recurrent one")
    if getattr(getattr(model, "decoder", None), "adaptive_softmax", None) is not None:
        raise UserError(
            "a model with an adaptive softmax cannot be exported; train one without "
            "--adaptive-softmax-cutoff"
        )
    for module in model.modules():
        if hasattr(module, "engine"):
            module.engine = "reference"
    return make(model.cpu().float(), task)


def random_sentences(dictionary, lengths, seed: int = 1) -> Tensor:
    """Sentences ``(B, max(lengths))`` of random words, ended by </s> and padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    first, count = dictionary.nspecial, len(dictionary)
    shape = (len(lengths), max(lengths))
    tokens = torch.randint(min(first, count - 1), count, shape, generator=generator)
    place, ends = torch.arange(shape[1]), torch.tensor(lengths).unsqueeze(1) - 1
    tokens[place.eq(ends)] = dictionary.eos()
    tokens[place.gt(ends)] = dictionary.pad()
    return tokens


def both(make: Callable[..., dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """The example and the probe of a graph, by what makes inputs for lengths of sentences."""
    return {"inputs": make(EXAMPLE), "probe": make(PROBE)}


def classifier(model, task) -> dict[str, Graph]:
    """The graph of a sentence classifier."""

    def make(lengths):
        inputs = {"tokens": random_sentences(task.source_dictionary, lengths)}
        if task.pairs:
            other = [length + 1 for length in reversed(lengths)]
            inputs["pair_tokens"] = random_sentences(task.source_dictionary, other)
        return inputs

    axes = {"tokens": {0: "batch", 1: "length"}}
    if task.pairs:
        axes["pair_tokens"] = {0: "batch", 1: "pair_length"}
    return {"model": Graph(Classify(model), axes, ("probabilities",), **both(make))}


def tagger(model, task) -> dict[str, Graph]:
    """The graph of a tagger."""

    def make(lengths):
        tokens = random_sentences(task.source_dictionary, lengths)
        if model.encoder.spelling is None:
            return {"tokens": tokens}
        words = tokens[:, 1:].ne(task.source_dictionary.pad())
        letters = [4 if real else 1 for real in words.flatten().tolist()]
        spelling = random_sentences(task.characters, letters)
        spelling[~words.flatten()] = task.characters.pad()
        return {"tokens": tokens, "spelling": spelling.view(*words.shape, -1)}

    axes = {
        "tokens": {0: "batch", 1: "length_and_end"},
        "spelling": {0: "batch", 1: "length", 2: "characters"},
    }
    graph = Tag(model, task.constraints)
    return {"model": Graph(graph, axes, ("tags", "emissions"), **both(make))}


def language_model(model, task) -> dict[str, Graph]:
    """The graph of a language model."""
    rnn = model.decoder.rnn
    parts = ("h", "c") if rnn.has_cell else ("h",)

    def make(lengths):
        state = torch.zeros(rnn.num_layers, len(lengths), rnn.hidden_size)
        tokens = random_sentences(task.source_dictionary, [max(lengths)] * len(lengths))
        return {"tokens": tokens} | {name: state.clone() for name in parts}

    axes = {"tokens": {0: "batch", 1: "length"}} | {name: {1: "batch"} for name in parts}
    outputs = ("log_probs", *(f"new_{name}" for name in parts))
    return {"model": Graph(Predict(model), axes, outputs, **both(make))}


def translation(model, task) -> dict[str, Graph]:
    """Encoder and decoder's step of a translation model."""
    rnn, encode = model.decoder.rnn, Encode(model)
    parts = ("h", "c") if rnn.has_cell else ("h",)
    outputs = ("keys", "values", "mask", *parts)

    def make(lengths):
        return {"tokens": random_sentences(task.source_dictionary, lengths)}

    @torch.no_grad()
    def make_step(lengths):
        encoded = dict(zip(outputs, encode(**make(lengths)), strict=True))
        tokens = random_sentences(task.target_dictionary, [1] * len(lengths)).squeeze(1)
        feed = torch.zeros(len(lengths), rnn.hidden_size)
        source = {name: encoded[name] for name in ("keys", "values", "mask")}
        return {"tokens": tokens, **source, "feed": feed} | {name: encoded[name] for name in parts}

    batch, sentences = {0: "batch"}, {0: "batch", 1: "length"}
    axes = {"tokens": batch, "feed": batch} | {name: {1: "batch"} for name in parts}
    axes |= dict.fromkeys(("keys", "values", "mask"), sentences)
    new = ("log_probs", "attention", *(f"new_{name}" for name in ("feed", *parts)))
    return {
        "encoder": Graph(encode, {"tokens": sentences}, outputs, **both(make)),
        "decoder_step": Graph(DecodeStep(model), axes, new, **both(make_step)),
    }
