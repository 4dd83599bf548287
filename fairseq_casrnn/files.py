"""Writing files atomically."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from fairseq_casrnn.errors import UserError, printable

FORMULA = re.compile(r"'*[=+\-@]")  # how a cell starts that a spreadsheet evaluates, or one escaped

LEFTOVER = 3600  # seconds after which a draft counts as abandoned


def make_folder(folder: Path, out: Path) -> None:
    """Make ``folder`` and its parents; ``out`` is the value of ``--out``, for the message.

    Raises:
        UserError: the folder cannot be made or is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise UserError(f"--out {out} cannot be written; give another folder")


def check_writable(*paths: str | os.PathLike | None) -> None:
    """Check output files before the work; None stands for no file.

    Raises:
        UserError: a file cannot be written, or is named twice.
    """
    seen = set()
    for path in paths:
        if path is None:
            continue
        if os.path.realpath(path) in seen:
            raise UserError(f"{path} is named twice; give each output its own file")
        seen.add(os.path.realpath(path))
        parent = os.path.dirname(path) or "."
        if os.path.isdir(path):
            raise UserError(f"cannot write {path}: it is a folder; name a file")
        if not os.path.isdir(parent):
            raise UserError(f"cannot write {path}: there is no folder {parent}; make it first")
        if not os.access(parent, os.W_OK):
            raise UserError(f"cannot write {path}: you may not write to {parent}; name another")


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """Yield a temporary name to write to, which replaces ``path`` at the end.

    After a failure it is removed. Temporary files that a killed process has left are removed after
    an hour. An OSError that names the temporary file, or none, names ``path`` instead.
    """
    remove_leftovers(Path(path))
    draft = f"{os.fspath(path)}.{secrets.token_hex(4)}.tmp"  # another process may write path, too
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:
        add_filename(error, path, instead_of=draft)
        raise
    try:
        yield draft
        os.replace(draft, path)
    except BaseException as error:
        add_filename(error, path, instead_of=draft)
        with contextlib.suppress(OSError):
            os.remove(draft)
        raise


def remove_leftovers(path: Path) -> None:
    """Remove drafts of ``path`` to which nothing was written for an hour, if that is possible."""
    draft = re.compile(rf"{re.escape(path.name)}(\.[0-9a-f]{{8}})?\.tmp")  # .tmp: older versions'
    with contextlib.suppress(OSError):
        for file in path.parent.iterdir():
            if draft.fullmatch(file.name) and file.lstat().st_mtime < time.time() - LEFTOVER:
                file.unlink()


def add_filename(
    error: BaseException, path: str | os.PathLike, instead_of: str | None = None
) -> None:
    """Name ``path`` in an OSError, ``error`` or one in its context, where it is ``instead_of``.

    Errors of writing name no file; those of copying have a second one.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError):
            if link.filename in (None, instead_of):
                link.filename = os.fspath(path)
            if link.filename2 is not None and link.filename2 == instead_of:
                link.filename2 = os.fspath(path)
        link = link.__context__


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[TextIO]:
    """Open a text file for writing, which replaces ``path`` at the end.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with replacing(path) as draft, open(draft, "w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file completely or not at all.

    Raises:
        UserError: it cannot be written.
    """
    with whole_file(path) as file:
        file.write(text)


def write_json(path: str | os.PathLike, content: object) -> None:
    """Write a JSON file completely or not at all.

    Raises:
        UserError: it cannot be written.
    """
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def table_cell(text: str) -> str:
    """A text as a cell of a table in a file.

    Spreadsheets evaluate cells that start with =, +, - or @, so these get a ' in front, and so does
    what already looks like that: :func:`cell_text` gives the text back.
    """
    text = printable(text)
    return f"'{text}" if FORMULA.match(text) else text


def cell_text(cell: str) -> str:
    """The text of a cell that :func:`table_cell` has written."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def append_json(path: str | os.PathLike, record: dict[str, object]) -> None:
    """Append a line of JSON completely or not at all.

    Raises:
        OSError: it cannot be written; the file is unchanged, and the error names it.
    """
    line = (json.dumps(record) + "\n").encode()
    with open(path, "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # the last line is incomplete: start a new one
                line = b"\n" + line
        try:
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            file.truncate(end)
            error.filename = file.name
            raise
