"""The input files of ``casrnn prepare``: whether they have changed since."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from fairseq_casrnn.data.checksum import checksum, contents
from fairseq_casrnn.errors import UserError

OPTIONS = ("train", "valid", "test")


def input_files(args: argparse.Namespace) -> Iterator[Path]:
    """The files or folders that the options name."""
    for option in OPTIONS:
        value = getattr(args, option, None)
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path):
                yield path


def checksums(args: argparse.Namespace) -> dict[str, str]:
    """The checksum of each input file or folder that exists, by its absolute path."""
    return {str(path.resolve()): of_path(path) for path in input_files(args) if path.exists()}


def of_path(path: Path) -> str:
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
        if kept is not None and path.exists() and kept != of_path(path):
            raise UserError(
                f"{path} has changed since {args.out} was prepared; add --force to prepare it "
                "again, or give another --out"
            )
