"""Folders of prepared data: the options and input files that they were prepared with."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from fairseq_casrnn.data.checksum import checksum, contents
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError, as_option
from fairseq_casrnn.kinds import TRAINED_ON

OPTIONS_FILE = "options.json"
# Keys of prepare.json that casrnn train reads; the last is that of folders of earlier versions.
LONGEST, TOKENS = "longest example, in tokens", "train tokens (of the longer side of each pair)"
OLD_TOKENS = "train tokens, of the longer sides"
INPUT_CHECKSUMS = "checksums of the input files"  # key of OPTIONS_FILE
# Options that do not change the result, and paths, since files may have moved.
IGNORED_OPTIONS = {"out", "force", "workers", "raw", "archive", "set"}
BINARISED = re.compile(r"[^.]+\.([^.-]+)-([^.-]+)\.[^.]+\.idx")  # train.de-en.de.idx


def is_prepared(args: argparse.Namespace) -> bool:
    """Whether ``args.out`` already holds the data that ``args`` ask for; if so, print that.

    Raises:
        UserError: the folder was prepared with other options, from another corpus, or from input
            files that have changed since.
    """
    folder = args.out / "data-bin"
    source = ""
    if args.force or not folder.exists():
        return False
    if (folder / OPTIONS_FILE).is_file():
        before = {"words_of": None, "vectors": None, **prepared_options(args.out)}
        now = chosen_options(args)
        programs = [options.get("program") for options in (before, now)]
        if None not in programs and programs[0] != programs[1]:
            raise UserError(
                f"{args.out} holds another corpus ({programs[0]}), not {programs[1]}; "
                "give another --out, or --force to replace it"
            )
        source = f", from {before['source']}" if "source" in before else ""
        other = [name for name in now if name in before and before[name] != now[name]]
        if other:
            name = other[0]
            option = as_option(name)
            was = f"without {option}" if before[name] is None else f"with {option} {before[name]}"
            wanted = "without it" if now[name] is None else now[name]
            raise UserError(
                f"{args.out} was prepared {was}, not {wanted}; give another --out, or --force to "
                "prepare it again"
            )
        check_unchanged(args, before.get(INPUT_CHECKSUMS))
    print(f"{args.out} is already prepared{source}; --force prepares it again")
    return True


def input_files(args: argparse.Namespace) -> Iterator[Path]:
    """The files or folders that the options name."""
    for option in ("train", "valid", "test"):
        value = getattr(args, option, None)
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path):
                yield path


def input_checksums(args: argparse.Namespace) -> dict[str, str]:
    """The checksum of each input file or folder that exists, by its absolute path."""
    return {str(path.resolve()): checksum_of(path) for path in input_files(args) if path.exists()}


def checksum_of(path: Path) -> str:
    """The checksum of a file, or of the names and contents of all files in a folder."""
    if not path.is_dir():
        return checksum(contents([path]))
    files = sorted(one for one in path.rglob("*") if one.is_file())
    names = "\n".join(str(one.relative_to(path)) for one in files)
    return checksum([names.encode("utf-8", "surrogateescape"), *contents(files)])


def check_unchanged(args: argparse.Namespace, before: object) -> None:
    """Raise UserError if an input file differs from that with which ``args.out`` was prepared.

    Args:
        args: the command's options.
        before: the checksums at that time; folders of older versions have none.
    """
    known = before if isinstance(before, dict) else {}
    for path in input_files(args):
        kept = known.get(str(path.resolve()))
        if kept is not None and path.exists() and kept != checksum_of(path):
            raise UserError(
                f"{path} has changed since {args.out} was prepared; add --force to prepare it "
                "again, or give another --out"
            )


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


def save_options(args: argparse.Namespace, folder: Path) -> None:
    """Write the options to ``folder``, a new ``data-bin``, for :func:`is_prepared`."""
    source = getattr(args, "raw", None) or getattr(args, "archive", None)
    known: dict[str, object]
    known = {} if source is None else {"source": str(Path(source).resolve())}
    if files := input_checksums(args):
        known[INPUT_CHECKSUMS] = files
    text = json.dumps(chosen_options(args) | known, indent=1) + "\n"
    (folder / OPTIONS_FILE).write_text(text, encoding="utf-8")


def chosen_options(args: argparse.Namespace) -> dict:
    """The options that determine the data, as JSON values."""
    chosen = {
        name: value
        for name, value in vars(args).items()
        if name not in IGNORED_OPTIONS and not callable(value)  # casrnn stores its function there
    }
    return json.loads(json.dumps(chosen, default=lambda path: str(Path(path).resolve())))
