"""Random held-out data, stratified by class, with equal texts in the same split."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence

from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.errors import UserError, counted

SHARE = 0.1  # share of the examples for each of valid and test


def hold_out_missing(
    splits: dict[str, list],
    keys: Sequence[Hashable],
    labels: Sequence[str] | None,
    seed: int,
    what: str,
    most: int | None = None,
) -> dict[str, object]:
    """Take the splits that no file was given for out of ``splits["train"]``, if there are any.

    Args:
        splits: the examples of each split; changed.
        keys, labels, seed, most: as for :func:`hold_out`; no ``labels``: all are of one class.
        what: what follows "a tenth" in the report, such as " of the sentences".

    Returns:
        What was held out, for the report.

    Raises:
        UserError: there are too few examples.
    """
    missing = [name for name in SPLITS if name not in splits]
    if not missing:
        return {}
    labels = labels or [""] * len(keys)
    chosen = hold_out(keys, labels, missing, seed, most)
    rows = splits["train"]
    splits |= {name: [rows[place] for place in places] for name, places in chosen.items()}
    names = f"{'each of ' if len(missing) > 1 else ''}{' and '.join(missing)}"
    note = f"a tenth{what} for {names} (--split-seed {seed})"
    return {"held out": note, **size_notes(chosen, labels, missing, most)}


def size_notes(
    chosen: Mapping[str, Sequence[int]],
    labels: Sequence[str],
    parts: Sequence[str],
    most: int | None = None,
) -> dict[str, str]:
    """Notes on the parts that are less than half or more than double of what :func:`hold_out` aims
    at, with the reason.

    Args:
        chosen: its result.
        labels, parts, most: its arguments.
    """
    aim = max(1, SHARE * len(labels))
    aim = min(aim, most or aim)
    reason = "identical texts stay together"
    if len(set(labels)) > 1:
        reason += " and each class with enough different texts gives at least one"
    return {
        f"held out for {name}": f"{len(chosen[name])} of {len(labels)} instead of about "
        f"{round(aim)}, since {reason}"
        for name in parts
        if not aim / 2 <= len(chosen[name]) <= 2 * aim
    }


def hold_out(
    keys: Sequence[Hashable],
    labels: Sequence[str],
    parts: Sequence[str],
    seed: int,
    most: int | None = None,
) -> dict[str, list[int]]:
    """Positions of the examples of ``train`` and of each held-out part.

    Args:
        keys: a key for each example, such as its text; equal keys are in the same part.
        labels: a class for each example; the first example of a key determines the key's class.
        parts: names of the parts to hold out; each gets :data:`SHARE` of the keys of every class
            that has enough, at least one.
        seed: seed of the choice.
        most: maximum number of keys of a class in a part.

    Raises:
        UserError: there are too few examples.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    by_label: dict[str, list[list[int]]] = {}
    for group in groups.values():
        by_label.setdefault(labels[group[0]], []).append(group)
    chosen: dict[str, list[int]] = {name: [] for name in ("train", *parts)}
    draw = random.Random(seed)
    for label in sorted(by_label):
        rest = by_label[label]
        draw.shuffle(rest)
        size = max(1, round(SHARE * len(rest))) if len(rest) > len(parts) + 1 else 0
        size = min(size, most or size)
        for name in parts:
            chosen[name] += [place for group in rest[:size] for place in group]
            rest = rest[size:]
        chosen["train"] += [place for group in rest for place in group]
    for name in parts:
        if not chosen[name]:
            raise UserError(
                f"--train has {counted(len(groups), 'different example')}, too few to hold some "
                f"out for {name}; give more, or a file with --{name}"
            )
    return {name: sorted(places) for name, places in chosen.items()}
