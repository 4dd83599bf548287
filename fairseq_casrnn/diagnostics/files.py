"""Explain mistakes with files, full disks and exhausted memory."""

import errno
import os
import re
from typing import Any

from fairseq_casrnn.diagnostics.frames import GENERATE, Rules, frame_local

READER_ENDED = (
    "the program that reads the output has ended; let it read everything, or write to a file"
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# numpy and pybind11 raise MemoryError, torch raises RuntimeError.
NO_MEMORY = re.compile(
    "std::bad_alloc|can't allocate memory|not enough memory|out of memory|can't start new thread"
)


def _no_folder(error: OSError) -> str | None:
    verify = "fairseq.checkpoint_utils.verify_checkpoint_directory"
    folder = frame_local(error, verify, "save_dir")
    if folder is None or error.errno in DISK_FULL:
        return None
    return f"--save-dir {folder} cannot be written ({error.strerror}); give another folder"


def _missing_file(error: FileNotFoundError) -> str | None:
    found = re.fullmatch(r"Dataset not found: (.*) \((.*)\)", str(error))
    if found:
        return (
            f"there is no '{found[1]}' dataset at {found[2]}; check the data folder, "
            "--source-lang, --target-lang and the subset's name"
        )
    name = error.filename or str(error)
    return f"{name} does not exist; check the path" if name else None


def _missing_model(error: OSError) -> str | None:
    found = re.fullmatch(r"Model file not found: (.*)", str(error))
    if not found:
        return None
    # fairseq-generate loads the language model after the translation models.
    option = "--lm-path" if frame_local(error, GENERATE, "models") else "--path"
    return f"checkpoint {found[1]} does not exist; check {option}"


def disk_full(error: Exception, name: str | os.PathLike | None = None) -> str | None:
    """The message if a disk is full; ``name`` is used if the error names no file."""
    # torch's writer raises a second error when it closes the file, so check the context, too.
    link: Any = error
    while link is not None and getattr(link, "errno", None) not in DISK_FULL:
        link = link.__context__
    if link is None:
        return None
    name = link.filename2 or link.filename or name or "the output"
    reason = link.strerror or "no space left"
    return f"could not write {name} ({reason}); free some space and run the command again"


def out_of_memory(error: BaseException) -> str | None:
    """The message if an allocation failed."""
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not short and not NO_MEMORY.search(str(error)):
        return None
    return (
        "out of memory; use smaller batches (--max-tokens, --batch-size), a smaller model or less "
        "data, or raise the memory limit"
    )


def _broken_pipe(error: BrokenPipeError) -> str | None:
    return READER_ENDED


def system_error(error: OSError) -> str | None:
    """Any other system error that names a file."""
    if found := re.fullmatch(r"file (.*) not found", str(error)):
        return f"{found[1]} does not exist; check the path"
    if error.errno is None or error.filename is None:
        return None
    return f"{os.fspath(error.filename)} cannot be used ({error.strerror}); check the path"


RULES: Rules = (
    (OSError, _no_folder),
    (FileNotFoundError, _missing_file),
    (OSError, _missing_model),
    (Exception, disk_full),
    (BrokenPipeError, _broken_pipe),
)
