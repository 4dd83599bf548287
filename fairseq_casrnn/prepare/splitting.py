"""Random held-out data, stratified by class, with equal texts in the same split."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

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
        What was held out, for the report, with the reason if a part has less than half or more
        than double of what :func:`hold_out` aims at.

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
    notes: dict[str, object] = {"held out": f"a tenth{what} for {names} (--split-seed {seed})"}
    aim = max(1, SHARE * len(rows))
    aim = min(aim, most or aim)
    reason = "identical texts stay together"
    if len(set(labels)) > 1:
        reason += " and each class with enough different texts gives at least one"
    for name in missing:
        count = len(splits[name])
        if not aim / 2 <= count <= 2 * aim:
            notes[f"held out for {name}"] = (
                f"{count} of {len(rows)} instead of about {round(aim)}, since {reason}"
            )
    return notes


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
