"""Held-out data of a corpus without: by chance, each class in proportion, equal texts together."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

from fairseq_casrnn.errors import UserError

SHARE = 0.1  # of the examples, for each of valid and test


def hold_out(
    keys: Sequence[Hashable],
    labels: Sequence[str],
    parts: Sequence[str],
    seed: int,
    most: int | None = None,
) -> dict[str, list[int]]:
    """Positions of the examples of ``train`` and of each held-out part.

    Args:
        keys: what examples of one key have in common, such as their text, keeps them together.
        labels: a class each; of the examples of a key, that of the first counts.
        parts: names of the parts to hold out; each gets :data:`SHARE` of every class that has
            enough examples, and one at least.
        seed: of the choice.
        most: keys of a class in a part.

    Raises:
        UserError: there are too few examples for it.
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
                f"{len(groups)} different examples are too few to hold some out for {name}; give "
                f"more, or a file for it by --{name}"
            )
    return {name: sorted(places) for name, places in chosen.items()}
