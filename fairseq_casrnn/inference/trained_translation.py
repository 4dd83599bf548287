"""Loading a trained translation model with its dictionaries, subword units and tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.data.prepared import OPTIONS, read_json
from fairseq_casrnn.data.sentencepiece_units import NAME as SENTENCEPIECE
from fairseq_casrnn.data.sentencepiece_units import find_model
from fairseq_casrnn.errors import UserError

TOKENIZERS = ("space", "moses", "moses_lowercase", "chinese")


@dataclass(frozen=True)
class TranslationFiles:
    """The files and settings that a translation model needs.

    Args:
        data: folder of the dictionaries.
        source, target: language codes.
        tokenizer: name of a fairseq tokenizer, or "" for tokenised text.
        subwords: file of BPE codes or of a SentencePiece model, or None.
        bpe: ``subword_nmt``, ``sentencepiece`` or "".
    """

    data: Path
    source: str
    target: str
    tokenizer: str
    subwords: Path | None = None
    bpe: str = ""

    def dictionaries(self) -> list[str]:
        """The file names of the dictionaries."""
        return [f"dict.{self.source}.txt", f"dict.{self.target}.txt"]

    def options(self) -> dict[str, str]:
        """The options of task and text that are not file names."""
        found = {"source_lang": self.source, "target_lang": self.target}
        found |= {"tokenizer": self.tokenizer} if self.tokenizer else {}
        return found | ({"bpe": self.bpe} if self.bpe else {})

    def file_options(self) -> dict[str, str]:
        """The options that are file names."""
        name = {"subword_nmt": "bpe_codes", "sentencepiece": "sentencepiece_model"}.get(self.bpe)
        return {name: str(self.subwords)} if name else {}


def find_files(checkpoint: Path, cfg, data: Path | None = None) -> TranslationFiles:
    """Find the files of a checkpoint, in the data folder of ``casrnn prepare`` or a recipe.

    Args:
        checkpoint: the file.
        cfg: its options.
        data: folder of the dictionaries (default: that of the training or, if that has moved with
            the checkpoint, the one beside the runs).

    Raises:
        UserError: the dictionaries or subword units are missing.
    """
    from fairseq_casrnn.models.data_folders import find_data, languages

    place = find_data(checkpoint.parent, data, cfg["task"], cfg["model"])
    source, target = languages(place, cfg["task"])
    assert source is not None  # find_data has found its dictionary
    assert target is not None
    options = read_json(place / OPTIONS) if (place / OPTIONS).is_file() else None
    tokenizer = "" if options is None else options.get("tokenizer", "moses_lowercase")
    known = place, source, target, tokenizer
    if pieces := find_model(place):
        return TranslationFiles(*known, pieces, "sentencepiece")
    for folder in (place, place / ".." / "text"):
        if (folder / "bpe.codes").is_file():
            return TranslationFiles(*known, folder / "bpe.codes", "subword_nmt")
    for name, option in ((SENTENCEPIECE, "sentencepiece"), ("bpe.codes", "bpe_operations")):
        if options and options.get(option):
            raise UserError(
                f"{place / '..' / 'text' / name} of the training data does not exist; keep it "
                "beside data-bin"
            )
    return TranslationFiles(*known)


def load(path: Path, data: Path | None = None):
    """Load fairseq's hub interface of a translation model: packed, a run's or a checkpoint.

    Raises:
        UserError: it is missing, damaged, another kind of model, or lacks a file.
    """
    import torch

    from fairseq_casrnn import register

    register()
    from fairseq import checkpoint_utils
    from fairseq.models import ARCH_MODEL_REGISTRY

    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.models.data_folders import find_data
    from fairseq_casrnn.models.hub import find_checkpoint
    from fairseq_casrnn.models.kinds import TRANSLATION, check_kind
    from fairseq_casrnn.models.packed import is_packed, task_options, unpacked

    file = find_checkpoint(unpacked(path), None)
    with captured_log(), explained():
        cfg = checkpoint_utils.load_checkpoint_to_cpu(str(file)).get("cfg")
        check_kind(cfg, TRANSLATION, path)
        folder = find_data(file.parent, data, cfg.task, cfg.model)
        if is_packed(path):
            options = task_options(file.parent)
        else:
            files = find_files(file, cfg, folder)
            options = files.options() | files.file_options()
        model = ARCH_MODEL_REGISTRY[cfg.model._name]
        hub = model.from_pretrained(str(file.parent), file.name, str(folder.resolve()), **options)
    return hub.eval().to("cuda" if torch.cuda.is_available() else "cpu")
