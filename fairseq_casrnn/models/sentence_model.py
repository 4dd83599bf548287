"""What fairseq models of whole sentences share, whatever they find in them: classes, tags."""

from __future__ import annotations

from collections.abc import Callable

from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from torch import nn

from .build_bodies import tiny_sizes
from .config import bind, check_probabilities, check_sizes
from .embedding import build_embedding, check_embed_range
from .hub import Hub

SIZES = ("encoder_embed_dim", "encoder_hidden_size", "encoder_layers", "num_steps", "window")
DROPOUTS = ("dropout", "encoder_dropout_in", "encoder_dropout_out")


class SentenceModel(BaseFairseqModel):
    """A model with an ``encoder`` of sentences.

    Subclasses have ``hub()``, the kind of :class:`.Hub` that asks them, ``check_options(cfg,
    task)``, ``build_body(cfg, size)``, which makes the encoder's body for inputs of that size, and
    ``assemble(cfg, task, embed, body, spelling)``, which makes the model.

    Attributes:
        sizes, dropouts: options that only they have, and that are sizes or probabilities.
    """

    hub: Callable[[], type[Hub]]
    build_body: Callable
    check_options: Callable
    assemble: Callable
    sizes: tuple[str, ...] = ()
    dropouts: tuple[str, ...] = ()

    @classmethod
    def build_model(cls, cfg, task):
        """A new model for ``cfg`` (the dataclass of the architecture) and the task.

        Raises:
            UserError: option values that contradict each other or lie out of range.
        """
        check_sizes(cfg, [name for name in (*SIZES, *cls.sizes) if hasattr(cfg, name)])
        check_probabilities(cfg, (*DROPOUTS, *cls.dropouts))
        check_embed_range(cfg)
        cls.check_options(cfg, task)
        # A seed gives the same weights as long as the parts are made in this order.
        spelling, size = cls.build_spelling(cfg, task)
        embed = build_embedding(
            task.source_dictionary,
            cfg.encoder_embed_dim,
            cfg.encoder_embed_path,
            cfg.encoder_freeze_embed,
            cfg.encoder_embed_range,
        )
        body = cls.build_body(cfg, cfg.encoder_embed_dim + size)
        return cls.assemble(cfg, task, embed, body, spelling)

    @classmethod
    def build_spelling(cls, cfg, task) -> tuple[nn.Module | None, int]:
        """What reads the characters of words, and the size of its vectors; None and 0 without."""
        return None, 0

    def max_positions(self):
        """Any length."""
        return None

    @classmethod
    def from_pretrained(
        cls, model_name_or_path, checkpoint_file=None, data_name_or_path=None, **kwargs
    ):
        """Load a trained model to ask it from Python, as :class:`.SentenceHub` or ``TaggerHub``.

        Args:
            model_name_or_path: folder of the checkpoint, the checkpoint itself, or a file of
                ``casrnn pack``.
            checkpoint_file: its name there (default: checkpoint_best.pt, else model.pt, else
                checkpoint_last.pt).
            data_name_or_path: folder of the training's dictionaries, ``input0/dict.txt`` and
                ``label/dict.txt`` (default: the model's folder, else the data it was trained on).
            kwargs: options of the task or model to override. With ``encoder_embed_path``, words
                that the training data lacks have the vectors of that file.

        Raises:
            UserError: no checkpoint there, one of another kind, no dictionaries, or no such option.
        """
        return cls.hub().load(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)


def register(kind: type, arch: str, what: str, config: type, **functions) -> type:
    """Register a subclass of ``kind`` as the model ``arch`` and, for tests, ``<arch>_tiny``.

    Args:
        kind: a :class:`SentenceModel`.
        arch: the model's name.
        what: one sentence about it.
        config: the dataclass of its options.
        functions: static methods, ``build_body`` at least.
    """
    methods = {name: staticmethod(function) for name, function in functions.items()}
    model = type(arch.title().replace("_", ""), (kind,), {"__doc__": what, **methods})
    model = register_model(arch, dataclass=config)(bind(model, kind.__module__))
    register_model_architecture(arch, f"{arch}_tiny")(tiny_sizes(config))
    return model
