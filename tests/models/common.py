"""Small dictionaries, models built in-process, and batches for them."""

import warnings
from types import SimpleNamespace

import torch
from fairseq import options as fairseq_options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from helpers import Case, randomize

import fairseq_casrnn

fairseq_casrnn.register()

SOURCE, TARGET = 19, 23  # sizes of the dictionaries
# No two sizes are equal unless they must be, so that using one for another is an error.
SIZES = {
    "encoder_embed_dim": 5,
    "encoder_hidden_size": 3,
    "encoder_layers": 2,
    "decoder_embed_dim": 6,
    "decoder_hidden_size": 4,
    "decoder_layers": 2,
    "decoder_out_embed_dim": 7,
}
EQUAL = {name: 4 for name in SIZES if not name.endswith("layers")}
VARIANTS = {
    "plain": EQUAL,
    "sizes": {},
    "no-input-feed": {"no_input_feed": True},
    "bidirectional": {"encoder_bidirectional": True},
    "bidirectional-no-input-feed": {"encoder_bidirectional": True, "no_input_feed": True},
    "deeper-encoder": {**EQUAL, "encoder_layers": 3, "decoder_layers": 1},
    "deeper-decoder": {"encoder_layers": 1, "decoder_layers": 3},
    "shared-target": {"share_decoder_input_output_embed": True, "decoder_out_embed_dim": 6},
    "shared-all": {**EQUAL, "share_all_embeddings": True},
    # The tail clusters have 1/4 and 1/16 of the output's features.
    "adaptive": {"adaptive_softmax_cutoff": "8,15", "decoder_out_embed_dim": 16},
    "adaptive-equal": {
        "adaptive_softmax_cutoff": "8,15",
        "decoder_hidden_size": 16,
        "decoder_out_embed_dim": 16,
    },
}


def dictionary(size: int = TARGET) -> Dictionary:
    """A dictionary of ``size`` entries: fairseq's four special symbols and w4, w5, …"""
    words = Dictionary()
    for index in range(len(words), size):
        words.add_symbol(f"w{index}")
    return words


def make_task(source: int = SOURCE, target: int = TARGET):
    """A translation task's attributes that a model needs; equal sizes give a joined dictionary."""
    source_words = dictionary(source)
    target_words = source_words if source == target else dictionary(target)
    return SimpleNamespace(
        source_dictionary=source_words,
        target_dictionary=target_words,
        cfg=SimpleNamespace(left_pad_target=False),
        begin_epoch=lambda epoch, model: None,
    )


def parse(*argv):
    """The configuration that fairseq-train parses from a command line."""
    parser = fairseq_options.get_training_parser()
    args = fairseq_options.parse_args_and_arch(parser, ["data", *argv])
    with warnings.catch_warnings(action="ignore"):  # hydra's deprecations
        return convert_namespace_to_omegaconf(args)


def build(arch: str, task=None, **options):
    """Build a translation model by its architecture; ``options`` are command-line options."""
    limits = {"max_source_positions": 1024, "max_target_positions": 1024}
    return build_arch(arch, task or make_task(), limits, options)


def build_arch(arch: str, task, defaults: dict, options: dict):
    """Build the model of any architecture; ``options`` override ``defaults``."""
    given = SimpleNamespace(**options)
    ARCH_CONFIG_REGISTRY[arch](given)
    model = ARCH_MODEL_REGISTRY[arch]
    name = next(n for n in MODEL_DATACLASS_REGISTRY if ARCH_MODEL_REGISTRY.get(n) is model)
    return model.build_model(MODEL_DATACLASS_REGISTRY[name](**{**defaults, **vars(given)}), task)


def random_model(case: Case, variant: str = "sizes", seed: int = 0, **options):
    """A float64 model with random parameters, including the embedding of padding."""
    chosen = {"dropout": 0.0, **SIZES, **cell_options(case), **VARIANTS[variant], **options}
    joined = make_task(TARGET, TARGET) if chosen.get("share_all_embeddings") else None
    model = build(case.name, joined, **chosen).double()
    return randomize(model, seed)


def cell_options(case: Case) -> dict:
    """The options of ``case`` as they are given on a command line."""
    options = dict(case.options)
    if "lam" in options:
        options["lam"] = "none" if options["lam"] is None else str(options["lam"])
    return options


PAD, EOS = 1, 2
SOURCE_LENGTHS, TARGET_LENGTHS = (4, 6, 1), (5, 2, 3)  # not sorted


def tokens(lengths, size: int, left: bool = False, seed: int = 0) -> torch.Tensor:
    """Random sentences ``(B, max(lengths))`` that end with </s>, padded on the right or left."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        words = torch.randint(4, size, (length,), generator=generator)
        words[-1] = EOS
        start = len(row) - length if left else 0
        row[start : start + length] = words
    return rows


def source(left: bool = True, seed: int = 0, lengths=SOURCE_LENGTHS) -> torch.Tensor:
    """A batch of source sentences."""
    return tokens(lengths, SOURCE, left, seed)


def target(seed: int = 1, lengths=TARGET_LENGTHS) -> torch.Tensor:
    """A batch of previous target tokens, which start with </s>."""
    return (
        tokens(lengths, TARGET, seed=seed)
        .roll(1, 1)
        .where(torch.arange(max(lengths)) > 0, torch.tensor(EOS))
    )


def run(model, src=None, prev=None):
    """Outputs ``(B, T, V)`` and attention ``(B, T, S)``."""
    src = source() if src is None else src
    prev = target() if prev is None else prev
    x, extra = model(src, src.ne(PAD).sum(1), prev)
    return x, extra["attn"][0]
