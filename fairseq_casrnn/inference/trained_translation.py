"""Loading a trained translation model with its dictionaries, subword units and tokenizer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.data.prepared import OPTIONS, read_json
from fairseq_casrnn.data.sentencepiece_units import NAME as SENTENCEPIECE
from fairseq_casrnn.data.sentencepiece_units import find_model
from fairseq_casrnn.errors import UserError

BINARISED = re.compile(r"[^.]+\.([^.-]+)-([^.-]+)\.[^.]+\.idx")  # train.de-en.de.idx
TOKENIZERS = ("space", "moses", "moses_lowercase")


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


def find_files(checkpoint: Path, task_cfg, data: Path | None = None) -> TranslationFiles:
    """Find the files of a checkpoint, in the data folder of ``casrnn prepare`` or a recipe.

    Args:
        checkpoint: the file.
        task_cfg: mapping of the task's options.
        data: folder of the dictionaries (default: that of the training or, if that has moved with
            the checkpoint, the one beside the runs).

    Raises:
        UserError: the dictionaries or subword units are missing.
    """
    from fairseq_casrnn.models.hub import data_candidates

    places = [data] if data else data_candidates(checkpoint.parent, task_cfg["data"])
    for place in places:
        source, target = languages(place, task_cfg)
        if all((place / f"dict.{language}.txt").is_file() for language in (source, target)):
            break
    else:
        raise UserError(
            f"the dictionaries of both languages (dict.{source or 'de'}.txt, "
            f"dict.{target or 'en'}.txt) are not in {' nor in '.join(map(str, places))}; name the "
            "folder of the training data (--data)"
        )
    tokenizer = "moses_lowercase" if (place / OPTIONS).is_file() else ""
    assert source is not None  # its dictionary exists
    assert target is not None
    known = place, source, target, tokenizer
    if pieces := find_model(place):
        return TranslationFiles(*known, pieces, "sentencepiece")
    for folder in (place, place / ".." / "text"):
        if (folder / "bpe.codes").is_file():
            return TranslationFiles(*known, folder / "bpe.codes", "subword_nmt")
    options = read_json(place / OPTIONS) if tokenizer else {}
    for name, option in ((SENTENCEPIECE, "sentencepiece"), ("bpe.codes", "bpe_operations")):
        if options.get(option):
            raise UserError(
                f"{place / '..' / 'text' / name} of the training data does not exist; keep it "
                "beside data-bin"
            )
    return TranslationFiles(*known)


def languages(data: Path, task_cfg) -> tuple[str | None, str | None]:
    """Source and target language, from the options or, as in fairseq, from file names."""
    source, target = task_cfg["source_lang"], task_cfg["target_lang"]
    for path in sorted(data.glob("*.idx")) if None in (source, target) else ():
        if found := BINARISED.fullmatch(path.name):
            return found[1], found[2]
    return source, target


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
    from fairseq_casrnn.models.hub import find_checkpoint
    from fairseq_casrnn.models.kinds import TRANSLATION, check_kind
    from fairseq_casrnn.models.packed import is_packed, task_options, unpacked

    file = find_checkpoint(unpacked(path), None)
    with captured_log(), explained():
        cfg = checkpoint_utils.load_checkpoint_to_cpu(str(file)).get("cfg")
        check_kind(cfg, TRANSLATION, path)
        if is_packed(path):
            folder, options = file.parent, task_options(file.parent)
        else:
            files = find_files(file, cfg.task, data)
            folder, options = files.data, files.options() | files.file_options()
        model = ARCH_MODEL_REGISTRY[cfg.model._name]
        hub = model.from_pretrained(str(file.parent), file.name, str(folder.resolve()), **options)
    return hub.eval().to("cuda" if torch.cuda.is_available() else "cpu")
