"""Small language models built in-process, and texts for them."""

import random
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from helpers import randomize

import fairseq_casrnn

fairseq_casrnn.register()

SIZE = 23  # of the dictionary
WORDS = [f"w{index}" for index in range(4, SIZE)]


def dictionary(size: int = SIZE) -> Dictionary:
    """``size`` entries: fairseq's four and w4, w5, …"""
    words = Dictionary()
    for index in range(len(words), size):
        words.add_symbol(f"w{index}")
    return words


def make_task(size: int = SIZE):
    """What a model needs of a task."""
    words = dictionary(size)
    return SimpleNamespace(
        source_dictionary=words, target_dictionary=words, begin_epoch=lambda epoch, model: None
    )


def build(arch: str, task=None, **options):
    """The model of an architecture, where ``options`` stand for those of the command line."""
    given = SimpleNamespace(**options)
    ARCH_CONFIG_REGISTRY[arch](given)
    model = ARCH_MODEL_REGISTRY[arch]
    name = next(n for n in MODEL_DATACLASS_REGISTRY if ARCH_MODEL_REGISTRY.get(n) is model)
    config = MODEL_DATACLASS_REGISTRY[name](
        **{"tokens_per_sample": 512, "max_target_positions": None, **vars(given)}
    )
    return model.build_model(config, task or make_task())


def random_model(cell: str, **options):
    """A float64 model of different sizes throughout, all of whose parameters are random."""
    sizes = {"decoder_embed_dim": 5, "decoder_hidden_size": 6, "decoder_layers": 2, "dropout": 0.0}
    return randomize(build(f"{cell}_lm", **{**sizes, **options}).double()).eval()


def random_tokens(rows: int, steps: int, seed: int = 0) -> torch.Tensor:
    """Words ``(rows, steps)``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, SIZE, (rows, steps), generator=generator)


def write_text(path, sentences: int, seed: int = 0, words=WORDS, longest: int = 9):
    """Random sentences in which a word tends to follow its neighbour in the list."""
    rng = random.Random(seed)
    lines = []
    for _ in range(sentences):
        at, line = rng.randrange(len(words)), []
        for _ in range(rng.randint(1, longest)):
            line.append(words[at])
            at = (at + 1) % len(words) if rng.random() < 0.8 else rng.randrange(len(words))
        lines.append(" ".join(line))
    path.write_text("\n".join(lines) + "\n")
