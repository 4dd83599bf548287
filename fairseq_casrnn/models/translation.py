"""Translation: recurrent encoder and attention decoder, one fairseq model for each cell."""

from __future__ import annotations

import os
from pathlib import Path

from fairseq.models import FairseqEncoderDecoderModel, register_model

from ..cells import FAMILIES
from ..diagnostics.explain import explained
from ..errors import UserError
from .config import (
    RecurrentTranslationConfig,
    bind,
    build_stack,
    check_probabilities,
    check_sizes,
    config_for,
    warn_of_single_layers,
)
from .decoder import RecurrentDecoder
from .embedding import build_embedding
from .encoder import RecurrentEncoder
from .packed import is_packed, task_options, unpacked
from .portable import Portable

SIZES = [
    f"{side}_{what}"
    for side in ("encoder", "decoder")
    for what in ("embed_dim", "hidden_size", "layers")
] + ["decoder_out_embed_dim"]
# As fairseq's lstm. With 256 units, ±1/√H delays the epoch in which attention begins to align.
INITIAL_RANGE = 0.1
DROPOUTS = ["dropout"] + [f"{s}_dropout_{d}" for s in ("encoder", "decoder") for d in ("in", "out")]


class RecurrentTranslationModel(Portable, FairseqEncoderDecoderModel):
    """Encoder–decoder over any cell of :data:`fairseq_casrnn.cells.FAMILIES`."""

    cell_name = "stacked_lstm"

    @classmethod
    def build_model(cls, cfg, task):
        """A new model for ``cfg`` (the dataclass of the architecture) and a translation ``task``.

        Raises:
            UserError: option values that contradict each other or lie out of range.
        """
        check_sizes(cfg, SIZES)
        check_probabilities(cfg, DROPOUTS)
        warn_of_single_layers(cls.cell_name, cfg)
        if getattr(task.cfg or task.args, "left_pad_target", False):
            raise UserError("recurrent decoders need right-padded targets; drop --left-pad-target")
        encoder_embed, decoder_embed = build_embeddings(cfg, task)
        encoder = cls.build_encoder(cfg, task.source_dictionary, encoder_embed)
        decoder = cls.build_decoder(cfg, task.target_dictionary, decoder_embed, encoder.rnn)
        return cls(encoder, decoder)

    @classmethod
    def from_pretrained(
        cls, model_name_or_path, checkpoint_file="model.pt", data_name_or_path=".", **kwargs
    ):
        """fairseq's, of a folder with a checkpoint, or of a file of ``casrnn pack``.

        Args:
            model_name_or_path: the folder, or that file, which needs no further arguments.
            checkpoint_file: the checkpoint's name.
            data_name_or_path: folder of the dictionaries; with a leading dot, in that folder.
            kwargs: further options of the task or of generation.

        Raises:
            UserError: a folder does not exist, or the checkpoint cannot be loaded or is of no
                translation model.
        """
        folder, data = str(model_name_or_path), str(data_name_or_path)
        if is_packed(Path(folder)):
            unpacked_folder = unpacked(folder)
            kwargs = task_options(unpacked_folder) | kwargs
            folder, data_name_or_path = str(unpacked_folder), "."
        if data.startswith("."):
            data = os.path.join(folder, data)
        for path, what in ((folder, "the model"), (data, "data_name_or_path")):
            if not os.path.exists(path):
                raise UserError(f"{path} does not exist; check the path of {what}")
        with explained():
            hub = super().from_pretrained(folder, checkpoint_file, str(data_name_or_path), **kwargs)
        check_kind(hub.models, FairseqEncoderDecoderModel, "a translation model", folder)
        return hub

    @classmethod
    def build_rnn(cls, cfg, side, input_size, bidirectional=False):
        """The stack of ``side`` ("encoder" or "decoder")."""
        rnn = build_stack(
            cls.cell_name,
            cfg,
            input_size,
            getattr(cfg, f"{side}_hidden_size"),
            getattr(cfg, f"{side}_layers"),
            bidirectional=bidirectional,
            dropout=dropout(cfg, f"{side}_dropout_out"),
        )
        rnn.reset_parameters(INITIAL_RANGE)
        return rnn

    @classmethod
    def build_encoder(cls, cfg, dictionary, embed):
        """The encoder of ``cfg``."""
        return RecurrentEncoder(
            dictionary,
            embed,
            cls.build_rnn(cfg, "encoder", cfg.encoder_embed_dim, cfg.encoder_bidirectional),
            dropout_in=dropout(cfg, "encoder_dropout_in"),
            dropout_out=dropout(cfg, "encoder_dropout_out"),
            max_source_positions=cfg.max_source_positions,
        )

    @classmethod
    def build_decoder(cls, cfg, dictionary, embed, encoder_rnn):
        """The decoder of ``cfg`` on top of ``encoder_rnn``'s outputs and final states."""
        fed = 0 if cfg.no_input_feed else cfg.decoder_hidden_size
        return RecurrentDecoder(
            dictionary,
            embed,
            cls.build_rnn(cfg, "decoder", cfg.decoder_embed_dim + fed),
            encoder_layers=encoder_rnn.num_layers,
            encoder_size=encoder_rnn.output_size,
            input_feed=not cfg.no_input_feed,
            out_embed_dim=cfg.decoder_out_embed_dim,
            dropout_in=dropout(cfg, "decoder_dropout_in"),
            dropout_out=dropout(cfg, "decoder_dropout_out"),
            share_input_output_embed=cfg.share_decoder_input_output_embed
            or cfg.share_all_embeddings,
            adaptive_softmax_cutoff=cutoffs(cfg.adaptive_softmax_cutoff, len(dictionary)),
            max_target_positions=cfg.max_target_positions,
        )


def check_kind(models, kind: type, what: str, folder: str) -> None:
    """Raises UserError where a checkpoint holds another kind of model than the one asked for."""
    for model in models:
        if not isinstance(model, kind):
            raise UserError(
                f"the checkpoint in {folder} is of a {type(model).__name__}, not of {what}; load "
                "it with its own architecture, MODEL_REGISTRY[…].from_pretrained"
            )


def dropout(cfg, name: str) -> float:
    """The option ``name``, or ``--dropout`` where it is not given."""
    value = getattr(cfg, name)
    return cfg.dropout if value is None else value


def cutoffs(text: str | None, size: int) -> list[int] | None:
    """``--adaptive-softmax-cutoff`` as a list.

    Raises:
        UserError: it is not increasing within the vocabulary.
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


def build_embeddings(cfg, task):
    """The source and target embedding tables, shared where ``cfg`` says so.

    Raises:
        UserError: sharing that the dictionaries or sizes do not allow.
    """
    source, target = task.source_dictionary, task.target_dictionary
    shared = cfg.share_all_embeddings or cfg.share_decoder_input_output_embed
    if shared and cfg.adaptive_softmax_cutoff is not None:
        raise UserError(
            "--adaptive-softmax-cutoff cannot share the output embedding; drop one of them"
        )
    if shared and cfg.decoder_embed_dim != cfg.decoder_out_embed_dim:
        raise UserError(
            f"sharing the decoder's input and output embeddings needs --decoder-embed-dim "
            f"({cfg.decoder_embed_dim}) equal to --decoder-out-embed-dim "
            f"({cfg.decoder_out_embed_dim})"
        )
    encoder = build_embedding(
        source, cfg.encoder_embed_dim, cfg.encoder_embed_path, cfg.encoder_freeze_embed
    )
    if not cfg.share_all_embeddings:
        return encoder, build_embedding(
            target, cfg.decoder_embed_dim, cfg.decoder_embed_path, cfg.decoder_freeze_embed
        )
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


def register(name: str) -> type:
    """Register the model ``name`` for the family of that name."""
    config = config_for(name, RecurrentTranslationConfig)
    model = type(
        name.title().replace("_", "") + "Model",
        (RecurrentTranslationModel,),
        {"cell_name": name, "__doc__": f"Translation with {name}."},
    )
    return register_model(name, dataclass=config)(bind(model, __name__))


MODELS = {name: register(name) for name in FAMILIES}
