"""Translation: recurrent encoder and attention decoder, one fairseq model per cell."""

# No "from __future__ import annotations": fairseq needs the fields' types as objects. It knows
# Optional[str], but not str | None.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Any, Optional, Self

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from omegaconf import II
from torch import nn

from ..errors import UserError
from ..kinds import TRANSLATION
from ..layers import RecurrentStack
from .config import (
    EngineConfig,
    build_stack,
    check_probabilities,
    check_ranges,
    check_shared_output,
    check_sizes,
    config_for,
    dropout_option,
    warn_of_single_layers,
)
from .decoder import RecurrentDecoder
from .embedding import build_embedding
from .encoder import RecurrentEncoder
from .generator_model import GeneratorModel
from .registration import register_subclass

SIZES = [
    f"{side}_{what}"
    for side in ("encoder", "decoder")
    for what in ("embed_dim", "hidden_size", "layers")
] + ["decoder_out_embed_dim"]
RANGES = ["init_range", "embed_range"]
DROPOUTS = ["dropout"] + [f"{s}_dropout_{d}" for s in ("encoder", "decoder") for d in ("in", "out")]


@dataclass
class RecurrentTranslationConfig(EngineConfig, FairseqDataclass):
    """Options of the recurrent encoder–decoder, with the names of fairseq's ``lstm``."""

    dropout: float = field(default=0.1, metadata={"help": "dropout probability"})
    encoder_embed_dim: int = field(default=512, metadata={"help": "encoder embedding dimension"})
    encoder_embed_path: Optional[str] = field(
        default=None,
        metadata={"help": "file of pretrained encoder embeddings (GloVe or word2vec text)"},
    )
    encoder_freeze_embed: bool = field(
        default=False, metadata={"help": "do not train the encoder embeddings"}
    )
    encoder_hidden_size: int = field(
        default=512, metadata={"help": "hidden size of the encoder, per direction"}
    )
    encoder_layers: int = field(default=1, metadata={"help": "number of encoder layers"})
    encoder_bidirectional: bool = field(
        default=False, metadata={"help": "use two independent encoder stacks, one per direction"}
    )
    decoder_embed_dim: int = field(default=512, metadata={"help": "decoder embedding dimension"})
    decoder_embed_path: Optional[str] = field(
        default=None,
        metadata={"help": "file of pretrained decoder embeddings (GloVe or word2vec text)"},
    )
    decoder_freeze_embed: bool = field(
        default=False, metadata={"help": "do not train the decoder embeddings"}
    )
    decoder_hidden_size: int = field(default=512, metadata={"help": "hidden size of the decoder"})
    decoder_layers: int = field(default=1, metadata={"help": "number of decoder layers"})
    decoder_out_embed_dim: int = field(
        default=512, metadata={"help": "dimension of the output embedding"}
    )
    no_input_feed: bool = field(
        default=False,
        metadata={"help": "do not feed the attention output to the next step; trains faster"},
    )
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "share the decoder's input and output embeddings"}
    )
    share_all_embeddings: bool = field(
        default=False, metadata={"help": "share all embeddings (needs a joined dictionary)"}
    )
    adaptive_softmax_cutoff: Optional[str] = field(
        default=None,
        metadata={"help": "comma-separated list of cutoffs; use with --criterion adaptive_loss"},
    )
    encoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": "dropout on the encoder's embeddings (default: --dropout)"}
    )
    encoder_dropout_out: Optional[float] = field(
        default=None,
        metadata={"help": "dropout on the encoder's layer outputs (default: --dropout)"},
    )
    decoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": "dropout on the decoder's embeddings (default: --dropout)"}
    )
    decoder_dropout_out: Optional[float] = field(
        default=None,
        metadata={"help": "dropout on the decoder's layer outputs (default: --dropout)"},
    )
    # The defaults are those of fairseq's lstm. See docs/translation.md for what they do.
    init_range: float = field(
        default=0.1,
        metadata={"help": "recurrent weights are initially uniform within plus or minus this"},
    )
    embed_range: float = field(
        default=0.1,
        metadata={
            "help": "embeddings without a pretrained vector are initially uniform within plus or "
            "minus this"
        },
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: Optional[int] = II("task.max_target_positions")


class TranslationHub(GeneratorHubInterface):
    """fairseq's hub interface of a translation model, for which an empty text stays empty."""

    def sample(
        self, sentences: str | list[str], beam: int = 1, verbose: bool = False, **kwargs: Any
    ) -> Any:
        """As in fairseq, also for ``translate``. A model would make up something for no words."""
        if isinstance(sentences, str):
            return self.sample([sentences], beam, verbose, **kwargs)[0]
        texts = [text for text in sentences if text.strip()]
        found = iter(super().sample(texts, beam, verbose, **kwargs) if texts else [])
        return [next(found) if text.strip() else "" for text in sentences]


class RecurrentTranslationModel(GeneratorModel, FairseqEncoderDecoderModel):
    """Encoder–decoder with any cell of :data:`fairseq_casrnn.cells.FAMILIES`."""

    cell_name, kind = "stacked_lstm", TRANSLATION

    @classmethod
    def build_model(cls, cfg: RecurrentTranslationConfig, task: FairseqTask) -> Self:
        """A new model for ``cfg`` (the dataclass of the architecture) and a translation ``task``.

        Raises:
            UserError: option values that contradict each other or lie out of range.
        """
        check_sizes(cfg, SIZES)
        check_probabilities(cfg, DROPOUTS)
        check_ranges(cfg, RANGES)
        warn_of_single_layers(cls.cell_name, cfg)
        if getattr(task.cfg or task.args, "left_pad_target", False):
            raise UserError("recurrent decoders need right-padded targets; drop --left-pad-target")
        encoder_embed, decoder_embed = build_embeddings(cfg, task)
        rnn = cls.build_rnn(cfg, "encoder", cfg.encoder_embed_dim)
        encoder = RecurrentEncoder(task.source_dictionary, encoder_embed, rnn, cfg)
        feed_size = 0 if cfg.no_input_feed else cfg.decoder_hidden_size
        rnn = cls.build_rnn(cfg, "decoder", cfg.decoder_embed_dim + feed_size)
        size = encoder.rnn.output_size
        decoder = RecurrentDecoder(task.target_dictionary, decoder_embed, rnn, size, cfg)
        return cls(encoder, decoder)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> TranslationHub:
        """See :meth:`.GeneratorModel.from_pretrained`. An empty text stays empty."""
        hub = super().from_pretrained(*args, **kwargs)
        return TranslationHub(hub.cfg, hub.task, hub.models)

    @classmethod
    def build_rnn(
        cls, cfg: RecurrentTranslationConfig, side: str, input_size: int
    ) -> RecurrentStack:
        """The recurrent stack of ``side``, "encoder" or "decoder"."""
        rnn = build_stack(
            cls.cell_name,
            cfg,
            input_size,
            getattr(cfg, f"{side}_hidden_size"),
            getattr(cfg, f"{side}_layers"),
            bidirectional=side == "encoder" and cfg.encoder_bidirectional,
            dropout=dropout_option(cfg, f"{side}_dropout_out"),
        )
        rnn.reset_parameters(cfg.init_range)
        return rnn


def build_embeddings(
    cfg: RecurrentTranslationConfig, task: FairseqTask
) -> tuple[nn.Embedding, nn.Embedding]:
    """The source and target embedding tables; one table with ``--share-all-embeddings``.

    Raises:
        UserError: the dictionaries or sizes do not allow the sharing.
    """
    source, target = task.source_dictionary, task.target_dictionary
    if cfg.share_all_embeddings or cfg.share_decoder_input_output_embed:
        check_shared_output(cfg, cfg.decoder_out_embed_dim)

    def table(dictionary: Dictionary, side: str) -> nn.Embedding:
        names = ("embed_dim", "embed_path", "freeze_embed")
        options = (getattr(cfg, f"{side}_{name}") for name in names)
        return build_embedding(dictionary, *options, cfg.embed_range)  # type: ignore[call-arg]

    encoder = table(source, "encoder")
    if not cfg.share_all_embeddings:
        return encoder, table(target, "decoder")
    if source != target:
        raise UserError(
            "--share-all-embeddings needs a joined dictionary "
            "(fairseq-preprocess --joined-dictionary)"
        )
    if cfg.encoder_embed_dim != cfg.decoder_embed_dim:
        raise UserError(
            "--share-all-embeddings needs --encoder-embed-dim equal to --decoder-embed-dim"
        )
    if cfg.decoder_embed_path not in (None, cfg.encoder_embed_path):
        raise UserError("--share-all-embeddings takes one file of vectors: --encoder-embed-path")
    if cfg.encoder_freeze_embed != cfg.decoder_freeze_embed:
        raise UserError(
            "--share-all-embeddings needs both or none of --encoder-freeze-embed, "
            "--decoder-freeze-embed"
        )
    return encoder, encoder


def register_cell(cell: str) -> None:
    """Register the translation model ``<cell>``."""
    config, doc = config_for(cell, RecurrentTranslationConfig), f"Translation with {cell}."
    register_subclass(
        RecurrentTranslationModel, f"{cell}_model", cell, config, cell_name=cell, __doc__=doc
    )
