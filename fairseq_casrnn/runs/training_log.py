"""Read the statistics in a log of fairseq-train."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError

# Statistics look like "epoch 001 | loss 1.2 | …", "epoch 001:  10 / 20 loss=1.2, …" or JSON. They
# come first in a line (--log-file), or after "time | INFO | tag | " (fairseq's output) or
# "[time][tag][INFO] - " (hydra_train.log).
_LINE = re.compile(
    r"(?:^|\| INFO \| \S+ \| |\]\[INFO\] - )(epoch \d+(?::| \|).*|\{\".*)$", re.MULTILINE
)
_PART = re.compile(r"epoch \d+(?:(:)| \| valid on '(.*?)' subset)?")
_STAT = re.compile(r"(?:^|[ ,|])(\w+)[ =](-?[\d.]+(?:e[+-]?\d+)?)")


def read_text(path: str | os.PathLike) -> str:
    """The text of a log. Raises UserError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot read the log {path}: {error.strerror}") from error


def records(text: str) -> Iterator[tuple[str, dict]]:
    """Yield (tag, statistics) of the lines of a log that have statistics.

    The tag is "train_inner" within an epoch, "train" for a whole epoch, or the name of a validation
    set.
    """
    for line in _LINE.findall(text):
        tag, values = _json_record(line) if line.startswith("{") else _record(line)
        yield tag, dict(_finite(values))


def _finite(values: dict) -> Iterator[tuple[str, float]]:
    """The values that are finite numbers; in a truncated line, the last one may not be."""
    for name, value in values.items():
        with contextlib.suppress(ValueError, TypeError):
            if math.isfinite(number := float(value)):
                yield name, number


def _record(line: str) -> tuple[str, dict]:
    """Tag and statistics of a line of ``--log-format simple``."""
    part = _PART.match(line)
    within, subset = part.groups() if part else (None, None)
    tag = "train_inner" if within else subset or "train"
    return tag, dict(_STAT.findall(line))


def _json_record(line: str) -> tuple[str, dict]:
    """Tag and statistics of a line of ``--log-format json``.

    Except within an epoch, its keys begin with the tag.
    """
    try:
        values = parse_json(line)
    except ValueError:  # a truncated line
        return "", {}
    counts = [key for key in values if key.endswith("_num_updates")]
    tag = counts[0].removesuffix("_num_updates") if counts else "train_inner"
    return tag, {key.removeprefix(f"{tag}_"): value for key, value in values.items()}


def read_log(path: str | os.PathLike) -> tuple[dict[str, list[tuple[int, float]]], bool]:
    """The losses in a log of ``fairseq-train`` (its output or ``--log-file``) or hydra.

    Args:
        path: the log, in any ``--log-format``. If a resumed run has repeated updates, the later
            values count.

    Returns:
        ``{"train_inner": …, "train": …, "valid": …}``, each a list of (updates, loss), sorted:
        within an epoch, of whole epochs, and of the validation set ``valid``. If the criterion
        also logs the negative log-likelihood (label smoothing), it replaces the loss. And whether
        they are in bits per token: the log then has perplexities, unlike those of classifiers and
        taggers.

    Raises:
        UserError: no such file, or no losses in it.
    """
    curves: dict[str, dict[int, float]] = {"train_inner": {}, "train": {}, "valid": {}}
    per_token = False
    for tag, values in records(read_text(path)):
        per_token |= "ppl" in values
        loss = values.get("nll_loss", values.get("loss"))
        if tag in curves and loss is not None and "num_updates" in values:
            # fairseq writes a million as 1e+06.
            curves[tag][int(values["num_updates"])] = loss
    if not any(curves.values()):
        raise UserError(f"{path} has no losses; is it the file of fairseq-train --log-file?")
    return {name: sorted(curve.items()) for name, curve in curves.items()}, per_token


def read_metric(path: str | os.PathLike, metric: str) -> list[tuple[int, float]]:
    """A sorted list of (epoch, value) of a metric of the validation set ``valid``.

    Raises:
        UserError: no such file, or no such metric in it.
    """
    curve = {
        int(values["epoch"]): values[metric]
        for tag, values in records(read_text(path))
        if tag == "valid" and metric in values and "epoch" in values
    }
    if not curve:
        raise UserError(f"{path} has no '{metric}' of a validation; check the metric's name")
    return sorted(curve.items())
