"""Small language models built in-process, and texts for them."""

import random
from types import SimpleNamespace

import torch
from helpers import randomize
from models.common import TARGET, build_arch, dictionary

import fairseq_casrnn

fairseq_casrnn.register()

SIZE = TARGET  # of the dictionary
WORDS = [f"w{index}" for index in range(4, SIZE)]


def make_task(size: int = SIZE):
    """A task's attributes that a model needs."""
    words = dictionary(size)
    return SimpleNamespace(
        source_dictionary=words, target_dictionary=words, begin_epoch=lambda epoch, model: None
    )


def build(arch: str, task=None, **options):
    """Build a language model by its architecture; ``options`` are command-line options."""
    limits = {"tokens_per_sample": 512, "max_target_positions": None}
    return build_arch(arch, task or make_task(), limits, options)


def random_model(cell: str, **options):
    """A float64 model with random parameters, all of whose sizes differ."""
    sizes = {"decoder_embed_dim": 5, "decoder_hidden_size": 6, "decoder_layers": 2, "dropout": 0.0}
    return randomize(build(f"{cell}_lm", **{**sizes, **options}).double()).eval()


def random_tokens(rows: int, steps: int, seed: int = 0) -> torch.Tensor:
    """Random words ``(rows, steps)``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, SIZE, (rows, steps), generator=generator)


def write_text(path, sentences: int, seed: int = 0, words=WORDS, longest: int = 9):
    """Write random sentences, in which most words follow their predecessor in ``words``."""
    rng = random.Random(seed)
    lines = []
    for _ in range(sentences):
        at, line = rng.randrange(len(words)), []
        for _ in range(rng.randint(1, longest)):
            line.append(words[at])
            at = (at + 1) % len(words) if rng.random() < 0.8 else rng.randrange(len(words))
        lines.append(" ".join(line))
    path.write_text("\n".join(lines) + "\n")
