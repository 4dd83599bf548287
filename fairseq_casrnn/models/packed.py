"""Reads packed models: single files that ``casrnn pack`` writes.

A packed model is a ZIP archive with ``casrnn.json`` (format version, and options of the task),
``model.pt`` (the checkpoint without the state of its training), dictionaries and subword codes.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from ..data.prepared import MANIFEST, OPTIONS_FILE, read_json
from ..data.subwords import BPE_CODES, SENTENCEPIECE, UNITS
from ..data.values import parse_json
from ..errors import UserError, quoted

FORMAT = 1
MODEL = "model.pt"
NAMES = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(MODEL)}|{re.escape(BPE_CODES)}|{re.escape(SENTENCEPIECE)}"
    r"|dict(\.[\w-]+)?\.txt|(input0|label|spelling)/dict\.txt"
)
TASK_OPTIONS = ("source_lang", "target_lang", "tokenizer", "bpe")
TEXT = "text"  # the manifest's key for TEXT_OPTIONS of a language model
TEXT_OPTIONS = {"tokenizer": str, "lowercase": bool, "language": str}
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
MAX_EXPANSION = 1100  # DEFLATE compresses by a factor of 1032 at most

_unpacked: dict[tuple, tempfile.TemporaryDirectory] = {}


def unpacked(path: str | Path) -> Path:
    """``path``, or for a packed model a temporary folder with its content.

    The folder is deleted at the end of the process. ``torch.load(weights_only=True)`` reads the
    weights from there, so that no code in the file is executed.

    Raises:
        UserError: a packed model that is damaged, or packed by a later version.
    """
    path = Path(path)
    if not is_packed(path):
        return path
    stat = path.stat()
    key = (path.resolve(), stat.st_mtime_ns, stat.st_size)
    if key not in _unpacked:
        folder = tempfile.TemporaryDirectory(prefix="casrnn-")
        unpack(path, Path(folder.name))
        _unpacked[key] = folder
    return Path(_unpacked[key].name)


def load_packed(original, filenames, *args, **kwargs):
    """Around fairseq's ``load_model_ensemble_and_task``: also loads packed models."""
    paths = [Path(name) for name in filenames]
    files = [
        str(unpacked(path) / MODEL) if is_packed(path) else name
        for path, name in zip(paths, filenames, strict=True)
    ]
    return original(files, *args, **kwargs)


def is_packed(path: str | Path) -> bool:
    """Whether a file is a packed model, by its name or content; checkpoints are ZIP files, too."""
    path = Path(path)
    if not path.is_file():
        return False
    if path.suffix == ".casrnn":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def unpack(path: Path, folder: Path) -> None:
    """Extract a packed model into a folder. Raises UserError if it is damaged."""
    damaged = f"{path} is damaged, or not a file of casrnn pack"
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            size = sum(entry.file_size for entry in archive.infolist())
            if not {MANIFEST, MODEL} <= set(names) or len(set(names)) < len(names):
                raise UserError(f"{damaged}; copy it again, or pack the model again")
            for name in names:
                if not NAMES.fullmatch(name):
                    raise UserError(f"{damaged}: it contains {quoted(name)}; do not use it")
            if size > 2**20 + MAX_EXPANSION * path.stat().st_size:
                raise UserError(f"{damaged}: its sizes are impossible; do not use it")
            archive.extractall(folder)  # compares the checksums
    except DAMAGE as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # an error of the temporary folder
        raise UserError(f"{damaged} ({error}); copy it again, or pack the model again") from None
    read_manifest(folder, path)


def read_manifest(folder: Path, path: Path | None = None) -> dict[str, Any] | None:
    """The content of ``casrnn.json`` in a folder, or None. Raises UserError if it is damaged.

    ``path`` is the packed file, for messages.
    """
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        content = parse_json(file.read_bytes())
        version = content["format"]
        options = {name: content[name] for name in TASK_OPTIONS if name in content}
        if not all(isinstance(value, str) for value in options.values()):
            raise ValueError("an option is not a string")
        check_text_options(content.get(TEXT, {}))
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path or file} is damaged: {MANIFEST} cannot be read; pack the model again"
        ) from None
    if version != FORMAT:
        raise UserError(
            f"{path or file} has format {quoted(str(version))}, and this version of fairseq-casrnn "
            f"reads format {FORMAT}; install another version, or pack the model again"
        )
    return content


def check_text_options(options: object) -> None:
    """Raise ValueError unless these are some of :data:`TEXT_OPTIONS`."""
    if not isinstance(options, dict):
        raise ValueError(f"{TEXT} is not an object")
    for name, value in options.items():
        if not isinstance(value, TEXT_OPTIONS.get(name, ())):
            raise ValueError(f"{name} of {TEXT} is unknown or has a wrong type")


def text_options(data: Path) -> dict[str, Any]:
    """How a language model's text was split into words: arguments of :func:`.words.words`.

    Args:
        data: its ``data-bin``, or the folder of an unpacked model.

    Raises:
        UserError: the file of options is damaged.
    """
    if (data / OPTIONS_FILE).is_file():
        prepared = read_json(data / OPTIONS_FILE)
        return {name: prepared[name] for name in TEXT_OPTIONS if prepared.get(name)}
    return (read_manifest(data) or {}).get(TEXT, {})


def task_options(folder: Path) -> dict[str, str]:
    """The options of a packed model's task: languages, tokenizer, subword units."""
    manifest = read_manifest(folder) or {}
    found = {name: str(manifest[name]) for name in TASK_OPTIONS if name in manifest}
    models = {option: folder / name for name, option in UNITS.values()}
    return found | {option: str(model) for option, model in models.items() if model.is_file()}
