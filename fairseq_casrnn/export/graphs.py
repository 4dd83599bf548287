"""Trained models as functions of tensors that torch.export can trace.

A translation model becomes two graphs: the encoder, and one step of the decoder. All other models
are one graph. Batches are padded on the right with the dictionary's padding symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.export.modules import (
    ClassifierModule,
    DecoderStepModule,
    EncoderModule,
    LanguageModelModule,
    TaggerModule,
)

# Lengths, including </s>, of the sentences for tracing a graph and for checking it.
EXAMPLE_LENGTHS, PROBE_LENGTHS = (5, 6, 3), (1, 7)


@dataclass
class Graph:
    """A function of tensors.

    Attributes:
        module: the function.
        axes: for each input, the names of its dynamic axes.
        outputs: names of the outputs.
        inputs: an example of each input, by name, in order.
        probe: another example, of other sizes.
    """

    module: nn.Module
    axes: dict[str, dict[int, str]]
    outputs: tuple[str, ...]
    inputs: dict[str, Tensor]
    probe: dict[str, Tensor]


def graphs(model, task) -> dict[str, Graph]:
    """The graphs of a model in ``eval()`` mode, by name.

    Args:
        model: a model of this package; its layers are switched to the engine ``reference``.
        task: its task.

    Raises:
        UserError: a model of another kind, a transformer, or an adaptive softmax.
    """
    from fairseq_casrnn.models.language_model import RecurrentLanguageModel
    from fairseq_casrnn.models.sentence_backbones import TransformerBackbone
    from fairseq_casrnn.models.sentence_encoder import SentenceClassifier
    from fairseq_casrnn.models.tagger import Tagger
    from fairseq_casrnn.models.translation import RecurrentTranslationModel

    builders = {
        RecurrentTranslationModel: translation,
        RecurrentLanguageModel: language_model,
        SentenceClassifier: classifier,
        Tagger: tagger,
    }
    build = next((build for cls, build in builders.items() if isinstance(model, cls)), None)
    if build is None:
        raise UserError(
            f"{type(model).__name__} cannot be exported; give a translation model, language model, "
            "sentence encoder or tagger of this package"
        )
    if any(isinstance(module, TransformerBackbone) for module in model.modules()):
        raise UserError("a transformer cannot be exported; give a recurrent sentence encoder")
    if getattr(getattr(model, "decoder", None), "adaptive_softmax", None) is not None:
        raise UserError(
            "a model with an adaptive softmax cannot be exported; train one without "
            "--adaptive-softmax-cutoff"
        )
    for module in model.modules():
        if hasattr(module, "engine"):
            module.engine = "reference"
    return build(model.cpu().float(), task)


def random_sentences(dictionary, lengths) -> Tensor:
    """Sentences ``(B, max(lengths))`` of random words, ended by </s> and padded on the right."""
    generator = torch.Generator().manual_seed(1)
    first, count = dictionary.nspecial, len(dictionary)
    shape = (len(lengths), max(lengths))
    tokens = torch.randint(min(first, count - 1), count, shape, generator=generator)
    position, last = torch.arange(shape[1]), torch.tensor(lengths).unsqueeze(1) - 1
    tokens[position.eq(last)] = dictionary.eos()
    tokens[position.gt(last)] = dictionary.pad()
    return tokens


def examples(make: Callable[..., dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """``inputs`` and ``probe`` of a graph; ``make`` creates inputs for given lengths."""
    return {"inputs": make(EXAMPLE_LENGTHS), "probe": make(PROBE_LENGTHS)}


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
    return {"model": Graph(ClassifierModule(model), axes, ("probabilities",), **examples(make))}


def tagger(model, task) -> dict[str, Graph]:
    """The graph of a tagger."""

    def make(lengths):
        tokens = random_sentences(task.source_dictionary, lengths)
        if model.encoder.spelling is None:
            return {"tokens": tokens}
        words = tokens[:, 1:].ne(task.source_dictionary.pad())
        word_lengths = [4 if real else 1 for real in words.flatten().tolist()]
        spelling = random_sentences(task.characters, word_lengths)
        spelling[~words.flatten()] = task.characters.pad()
        return {"tokens": tokens, "spelling": spelling.view(*words.shape, -1)}

    axes = {
        "tokens": {0: "batch", 1: "length_and_end"},
        "spelling": {0: "batch", 1: "length", 2: "characters"},
    }
    graph = TaggerModule(model, task.constraints)
    return {"model": Graph(graph, axes, ("tags", "emissions"), **examples(make))}


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
    return {"model": Graph(LanguageModelModule(model), axes, outputs, **examples(make))}


def translation(model, task) -> dict[str, Graph]:
    """The graphs of a translation model: encoder and decoder step."""
    rnn, encode = model.decoder.rnn, EncoderModule(model)
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
        "encoder": Graph(encode, {"tokens": sentences}, outputs, **examples(make)),
        "decoder_step": Graph(DecoderStepModule(model), axes, new, **examples(make_step)),
    }
