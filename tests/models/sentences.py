"""Sentence encoders built in-process, and batches for them."""

from types import SimpleNamespace

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

from fairseq_casrnn.cells import FAMILIES

from .common import EOS, PAD, SOURCE, dictionary, tokens

NAMES = [*FAMILIES, "sentence_state_lstm", "shortcut_lstm", "cnn", "transformer"]
RECURRENT = list(FAMILIES)
LENGTHS = (4, 6, 1)  # the last sentence is empty: </s> alone


def make_task(classes=3, pairs=False):
    """A classification task's attributes that a model needs."""
    return SimpleNamespace(
        source_dictionary=dictionary(SOURCE),
        classes=[f"class{n}" for n in range(classes)],
        pairs=pairs,
        begin_epoch=lambda epoch, model: None,
        cfg=SimpleNamespace(truncate=None),
        normalisation={"lowercase": False, "zero_digits": False},
        state=SimpleNamespace(text={}),
        tokenizer="whitespace",
    )


def encoder(name, task=None, seed=0, tiny=True, **options):
    """A float64 model, without dropout by default, initialised from a fixed seed."""
    torch.manual_seed(seed)
    arch = f"{name}_sentence_encoder"
    given = SimpleNamespace(**{"dropout": 0.0, **options})
    if tiny:
        ARCH_CONFIG_REGISTRY[f"{arch}_tiny"](given)
    config = MODEL_DATACLASS_REGISTRY[arch](**vars(given))
    return MODEL_REGISTRY[arch].build_model(config, task or make_task()).double()


def batch(lengths=LENGTHS, seed=0):
    """Sentences ``(B, T)`` that end with </s>, padded on the right."""
    return tokens(lengths, SOURCE, seed=seed)


def alone(rows, b):
    """Sentence ``b`` of a batch as a batch of one, without padding."""
    return rows[b : b + 1, : int(rows[b].ne(PAD).sum())]


__all__ = ["EOS", "LENGTHS", "NAMES", "PAD", "RECURRENT", "alone", "batch", "encoder", "make_task"]
