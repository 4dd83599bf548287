"""Which tests ``make test`` leaves to ``make test-full``: those marked ``full``.

A test is marked ``full`` by hand if it is slow and a faster test fails first for the same defect. A
matrix is marked ``sampled`` instead: ``make test`` then runs a part of its parameter sets that has
every pair of values of two axes, and marks the rest ``full``. ``sampled(1)`` covers every value,
not every pair. An axis is one ``parametrize``, or a fixture with ``params``. ``sampled(every=3)``
keeps every third parameter set, for long tables such as those of a program's messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations

import pytest

PAIRS = 2


def mostly_full(values: Iterable, *kept) -> list:
    """Return ``values`` for ``parametrize``, marked ``full`` unless they are in ``kept``."""
    return [
        value if value in kept else pytest.param(value, marks=pytest.mark.full) for value in values
    ]


@pytest.hookimpl(tryfirst=True)  # before pytest deselects tests by their marks
def pytest_collection_modifyitems(items):
    # The slowest test goes first, so that no process runs long after the others.
    items.sort(key=lambda item: not item.name.startswith("test_in_the_interpreter"))
    matrices = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and hasattr(item, "callspec"):
            matrices[item.nodeid.partition("[")[0]].append(item)
    for matrix in matrices.values():
        mark = matrix[0].get_closest_marker("sampled")
        if step := mark.kwargs.get("every"):
            kept = set(range(0, len(matrix), step))
        else:
            kept = cover(list(map(point, matrix)), *mark.args)
        for number, item in enumerate(matrix):
            if number not in kept:
                item.add_marker("full")


def point(item) -> dict[str, tuple]:
    """Return the place of a test in its matrix: for each axis, which of its values."""
    axes = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.split(",") if isinstance(names, str) else names
        axes |= {name.strip(): ",".join(names) for name in names}
    found = defaultdict(tuple)
    for name, value in item.callspec.params.items():
        found[axes.get(name, name)] += (id(value),)  # by identity, since values may not be hashable
    return dict(found)


def cover(rows: Sequence[dict[str, Hashable]], strength: int = PAIRS) -> set[int]:
    """Return the numbers of a few ``rows`` that have all combinations of ``strength`` values.

    The choice is deterministic and greedy: the next row is the one with the most combinations that
    no earlier row has, and among equals the one whose values have been used least.
    """
    wanted = [set(combinations(sorted(row.items()), min(strength, len(row)))) for row in rows]
    missing, used, kept = set().union(*wanted), Counter(), set()
    while missing:
        best = max(
            range(len(rows)),
            key=lambda n: (len(wanted[n] & missing), -sum(used[v] for v in rows[n].items())),
        )
        kept.add(best)
        missing -= wanted[best]
        used.update(rows[best].items())
    return kept
