"""Taggers built in-process, and batches for them."""

from types import SimpleNamespace

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

from fairseq_casrnn.cells import FAMILIES

from .common import SOURCE, dictionary
from .sentences import batch

NAMES = [*FAMILIES, "sentence_state_lstm", "shortcut_lstm"]
TAGS = ["A", "B", "C", "D"]
LETTERS = 9  # size of the dictionary of characters: 4 special symbols and 5 letters


def make_task(spelled=True):
    """A tagging task's attributes that a model needs."""
    return SimpleNamespace(
        source_dictionary=dictionary(SOURCE),
        characters=dictionary(LETTERS) if spelled else None,
        classes=TAGS,
        constraints=None,
        begin_epoch=lambda epoch, model: None,
        normalisation={"lowercase": False, "zero_digits": False},
        state=SimpleNamespace(text={}),
        tokenizer="whitespace",
        use_characters=lambda: None,
    )


def tagger(name, task=None, seed=0, tiny=True, **options):
    """A float64 model, without dropout by default, initialised from a fixed seed."""
    torch.manual_seed(seed)
    arch = f"{name}_tagger"
    given = SimpleNamespace(**{"dropout": 0.0, "char_filters": 5, "char_embed_dim": 4, **options})
    if tiny:
        ARCH_CONFIG_REGISTRY[f"{arch}_tiny"](given)
    config = MODEL_DATACLASS_REGISTRY[arch](**vars(given))
    return MODEL_REGISTRY[arch].build_model(config, task or make_task()).double()


def spelling(rows, width=4, seed=0):
    """Characters ``(B, T - 1, width)`` for words (B, T), of one to ``width`` letters."""
    draw = torch.Generator().manual_seed(seed)
    pad, size = dictionary(LETTERS).pad(), (rows.size(0), rows.size(1) - 1, width)
    letters = torch.randint(4, LETTERS, size, generator=draw)
    count = torch.randint(1, width + 1, size[:2], generator=draw)
    letters[torch.arange(width) >= count.unsqueeze(-1)] = pad
    words = rows.ne(dictionary(SOURCE).pad()).sum(1) - 1
    letters[torch.arange(size[1]) >= words.unsqueeze(1)] = pad
    return letters


__all__ = ["NAMES", "TAGS", "batch", "make_task", "spelling", "tagger"]
