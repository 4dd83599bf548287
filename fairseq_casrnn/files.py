"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from fairseq_casrnn.errors import UserError, printable


def make_folder(folder: Path, out: Path) -> None:
    """Make ``folder``, in or at what ``--out`` names, with those above it.

    Raises:
        UserError: it cannot be made, or nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise UserError(f"--out {out} is no folder to write to; give another")


def check_writable(*paths: str | os.PathLike | None) -> None:
    """Before the work: raise UserError where a file cannot be written, or two are one.

    None is no file.
    """
    seen = set()
    for path in paths:
        if path is None:
            continue
        if os.path.realpath(path) in seen:
            raise UserError(f"{path} is named twice; give each output a file of its own")
        seen.add(os.path.realpath(path))
        parent = os.path.dirname(path) or "."
        if os.path.isdir(path):
            raise UserError(f"cannot write {path}: it is a folder; name a file")
        if not os.path.isdir(parent):
            raise UserError(f"cannot write {path}: there is no folder {parent}; make it first")
        if not os.access(parent, os.W_OK):
            raise UserError(f"cannot write {path}: {parent} is not yours to write in")


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """Yield a name to write to; it becomes ``path`` at the end, or goes if anything fails.

    That of a killed process, which has the same name, is removed first, and so is a symbolic link:
    nothing is written to where it leads.

    An OSError that names no file leaves with ``path`` as its ``filename``.
    """
    draft = f"{os.fspath(path)}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.remove(draft)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield draft
        os.replace(draft, path)
    except BaseException as error:
        name_output(error, path)
        with contextlib.suppress(OSError):
            os.remove(draft)
        raise


def name_output(error: BaseException, path: str | os.PathLike) -> None:
    """Note in an OSError, ``error`` or what it came of, that it is of ``path`` unless it names one.

    A write does not know where it goes.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError) and link.filename is None:
            link.filename = os.fspath(path)
        link = link.__context__


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[TextIO]:
    """Open a text file to write, which becomes ``path`` at the end.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with replacing(path) as draft, open(draft, "w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def write_json(path: str | os.PathLike, content: object) -> None:
    """Write a JSON file completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as draft, open(draft, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def table_cell(text: str) -> str:
    """A text as a cell of a table in a file.

    A spreadsheet would compute one that begins with =, +, - or @: that gets a ' in front.
    """
    text = printable(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def append_json(path: str | os.PathLike, record: dict[str, object]) -> None:
    """Append a line of JSON, or nothing.

    Raises:
        OSError: it cannot be written; the file is as it was, and the error names it.
    """
    line = (json.dumps(record) + "\n").encode()
    with open(path, "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a line that broke off, which must not take this one along
                line = b"\n" + line
        try:
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            file.truncate(end)
            error.filename = file.name
            raise
