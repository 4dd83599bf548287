"""The identity of a training: its data and the options that must not change when resuming.

A run has it in its file ``identity``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_casrnn.data.checksum import checksum, checksum_of_training_data, contents
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.runs.layout import IDENTITY

# Options that may change when resuming, and whether they have a value. --unconstrained-tags is
# included for older trainings, which had no constraints.
RESUMABLE_OPTIONS = {
    "--max-epoch": True,
    "--max-update": True,
    "--total-num-update": True,
    "--log-interval": True,
    "--tensorboard-logdir": True,
    "--cpu": False,
    "--unconstrained-tags": False,
}

# Options whose identity includes checksums of files.
FILES = ("--assignment-path", "--mix")
OPTION = re.compile(r"--?[A-Za-z]")


def identity(data: Path, options: Sequence[str]) -> str:
    """The text that identifies a training.

    Args:
        data: folder of the binarised data.
        options: options of ``fairseq-train`` without seed and folders.
    """
    lines = [checksum_of_training_data(data)]
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if name in RESUMABLE_OPTIONS:
            if RESUMABLE_OPTIONS[name] and not equals:
                next(words, None)
        elif name == "--assignment-path":
            path = Path(value if equals else next(words, ""))
            lines += [name, *([checksum(contents([path]))] if path.is_file() else [])]
        elif name == "--mix":
            values = [value] if equals else list(itertools.islice(words, 1))
            folders = [Path(one.rpartition(":")[0] or one) for one in values]
            lines += [word, *(checksum_of_training_data(one) for one in folders if one.is_dir())]
            lines += [] if equals else values
        else:
            lines.append(word)
    return "\n".join(lines).rstrip("\n")


def differences(before: str, now: str) -> tuple[bool, list[str]]:
    """The differences of an identity from that at the start of the training.

    Args:
        before: the identity at the start.
        now: the current identity.

    Returns:
        Whether the data differ, and for each option that differs, what it was at the start, such as
        "--lr 0.1 instead of 0.2", "with --bf16" or "without --clip-norm".
    """
    (data, *options), (other_data, *other_options) = before.split("\n"), now.split("\n")
    started, given = values_of(options), values_of(other_options)
    found = []
    for name in {**started, **given}:
        if started.get(name) == given.get(name):
            continue
        if name in FILES:
            found.append(f"another {name}")
        elif name not in given:
            found.append(f"with {name} {started[name][-1]}".rstrip())
        elif name not in started:
            found.append(f"without {name}")
        else:
            # The last value counts, unless the option accumulates and only earlier ones differ.
            old, new = started[name][-1], given[name][-1]
            if old == new:
                old, new = " and ".join(started[name]), " and ".join(given[name])
            found.append(f"{name} {old or 'without a value'} instead of {new or 'no value'}")
    return data != other_data, found


def values_of(options: Sequence[str]) -> dict[str, list[str]]:
    """The values of each option, with one text per occurrence."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in options:
        if OPTION.match(word):
            name, _, value = word.partition("=")
            found.setdefault(name, []).append(value)
        elif name:
            found[name][-1] = f"{found[name][-1]} {word}".lstrip()
    return found


def read_text(path: Path) -> str:
    """The text of ``identity`` or ``finished`` of a run, without trailing line ends."""
    return path.read_text("utf-8", "surrogateescape").rstrip("\n")


def check_trained_on(data: Path, runs: Iterable[Path]) -> None:
    """Raise UserError if one of the ``runs`` was trained on other data than the folder ``data``."""
    known = [run for run in runs if (run / IDENTITY).is_file()]
    own = checksum_of_training_data(data / "data-bin") if known else ""
    for run in known:
        if read_text(run / IDENTITY).partition("\n")[0] != own:
            raise UserError(
                f"{run} was trained on other data than {data} and may have seen its sentences; "
                "give the data it was trained on, complete, or choose other runs with --arch and "
                "--seed"
            )
