"""The identity of a training: its data and the options that must not change when resuming."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.data.checksum import checksum, checksum_of_training_data, contents

# Options that may change when resuming, and whether they have a value. --unconstrained-tags is one
# of them for the sake of older trainings, which had no constraints.
RESUMABLE_OPTIONS = {
    "--max-epoch": True,
    "--max-update": True,
    "--total-num-update": True,
    "--log-interval": True,
    "--tensorboard-logdir": True,
    "--cpu": False,
    "--unconstrained-tags": False,
}


def identity(data: Path, options: Sequence[str]) -> str:
    """The text that identifies a training; a run stores it beside its checkpoints.

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
