"""What makes a training another one than before: its data, and its options but for its length."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.data.checksum import checksum, checksum_of_training_data, contents

# Options that may change while a training goes on, and whether they have a value. Of tags that are
# decoded without constraints, trainings are that began before there were any.
LENGTH = {
    "--max-epoch": True,
    "--max-update": True,
    "--total-num-update": True,
    "--log-interval": True,
    "--tensorboard-logdir": True,
    "--cpu": False,
    "--unconstrained-tags": False,
}


def identity(data: Path, options: Sequence[str]) -> str:
    """The text that is kept beside a run's checkpoints.

    Args:
        data: folder of the binarised data.
        options: those of ``fairseq-train`` but for seed and folders.
    """
    lines = [checksum_of_training_data(data)]
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if name in LENGTH:
            if LENGTH[name] and not equals:
                next(words, None)
        elif name == "--assignment-path":
            path = Path(value if equals else next(words, ""))
            lines += [name, *([checksum(contents([path]))] if path.is_file() else [])]
        elif name == "--mix":
            behind = [value] if equals else list(itertools.islice(words, 1))
            folders = [Path(one.rpartition(":")[0] or one) for one in behind]
            lines += [word, *(checksum_of_training_data(one) for one in folders if one.is_dir())]
            lines += [] if equals else behind
        else:
            lines.append(word)
    return "\n".join(lines).rstrip("\n")
