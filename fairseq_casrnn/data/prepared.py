"""Reading a folder of prepared data: its kind, its languages and its options."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import TRAINED_ON

OPTIONS_FILE = "options.json"
MANIFEST = "casrnn.json"  # of a packed model
# Keys of prepare.json that casrnn train reads; the last is that of folders of earlier versions.
LONGEST, TOKENS = "longest example, in tokens", "train tokens (of the longer side of each pair)"
OLD_TOKENS = "train tokens, of the longer sides"
BINARISED = re.compile(r"[^.]+\.([^.-]+)-([^.-]+)\.[^.]+\.idx")  # train.de-en.de.idx


def read_json(path: Path) -> dict:
    """Read a JSON object from a file of a prepared folder.

    Raises:
        UserError: the file is damaged.
    """
    try:
        content = parse_json(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); prepare again with --force") from None
    return content


def prepared_folder(name: str) -> Path:
    """The prepared folder DIR for the argument ``DIR`` or ``DIR/data-bin`` of a command."""
    folder = Path(name)
    inner = folder.absolute().name == "data-bin" and not (folder / "data-bin").is_dir()
    return folder.parent if inner else folder


def binarised_folder(name: str | PathLike) -> Path:
    """``DIR/data-bin`` for the folder DIR of ``casrnn prepare``; otherwise the folder itself."""
    folder, inner = Path(name), Path(name, "data-bin")
    has_dictionary = any(folder.glob("dict*.txt"))
    return inner if inner.is_dir() and not has_dictionary else folder


def find_languages(folder: Path, split: str = "*") -> tuple[str, str] | None:
    """Source and target language of a ``data-bin``, from the file names of a split, or None."""
    for path in sorted(folder.glob(f"{split}.*.idx")):
        if found := BINARISED.fullmatch(path.name):
            return found[1], found[2]
    return None


def prepared_languages(folder: Path) -> tuple[str, str]:
    """Source and target language of a prepared folder, from its test set's file names.

    Raises:
        UserError: the folder is not prepared.
    """
    if found := find_languages(folder / "data-bin", "test"):
        return found
    raise UserError(
        f"{folder} is not a prepared folder (no data-bin with a test set in it); "
        "give the folder that casrnn prepare translation or a recipe has written"
    )


def prepared_options(folder: str | Path) -> dict:
    """The options with which a folder was prepared; none if it does not say.

    Raises:
        UserError: its file of options is damaged.
    """
    path = Path(folder, "data-bin", OPTIONS_FILE)
    return read_json(path) if path.is_file() else {}


def prepared_kind(folder: Path) -> str:
    """The KIND of ``casrnn prepare KIND`` that filled a folder. Raises UserError for others."""
    program, _, kind = str(prepared_options(folder).get("program", "")).rpartition(" ")
    if program != "casrnn prepare" or kind not in TRAINED_ON:
        raise UserError(
            f"{folder} was not filled by casrnn prepare; call casrnn prepare KIND --train FILE "
            f"--out {folder} first"
        )
    return kind
