"""Group rows into the lines of a table: means over seeds, and comparisons of systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_casrnn.evaluation.significance import mean_deviation, paired_t_test
from fairseq_casrnn.results.page import Table
from fairseq_casrnn.results.rows import Row, identity


@dataclass
class Group:
    """The rows of one line of a table: a system, its settings, all seeds."""

    rows: list[Row]

    @property
    def system(self) -> str:
        """Its name."""
        return str(self.rows[0].get("system", ""))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that distinguish it from other lines of its system."""
        return self.rows[0].get("settings", {})

    @property
    def seeds(self) -> int:
        """The number of runs; a row of means does not count if there are rows of single seeds."""
        return len(self.single_seeds) or sum(int(row.get("seeds", 1)) for row in self.rows)

    @property
    def single_seeds(self) -> list[Row]:
        """The rows of single seeds."""
        return [row for row in self.rows if "seed" in row]

    def values(self, name: str) -> list[str | float | dict]:
        """The values of a metric, by row."""
        found = (row.get("metrics", {}).get(name) for row in self.rows)
        return [value for value in found if value is not None]

    def by_seed(self, name: str) -> dict[int, float]:
        """The numbers of a metric by seed, where seeds are known."""
        return {
            row["seed"]: row["metrics"][name]
            for row in self.rows
            if "seed" in row and isinstance(row["metrics"].get(name), (int, float))
        }

    @property
    def setting(self) -> tuple:
        """Data and vectors, which it must share with the baseline that it is compared with."""
        return self.rows[0].get("reduced"), self.rows[0].get("vectors", "none")

    def mean(self, name: str) -> float | None:
        """The mean of a metric; None if there are no numbers."""
        values = self.values(name)
        if len(values) == 1 and isinstance(values[0], dict):
            return values[0]["mean"]
        numbers = [value for value in values if isinstance(value, (int, float))]
        return mean_deviation(numbers)[0] if numbers else None

    def texts(self, name: str, missing: str = "unknown") -> list[str]:
        """The distinct values of a field; ``missing`` stands for seeds without the field."""
        found = [row.get(name) for row in self.single_seeds or self.rows]
        if all(value is None for value in found):
            return []
        return list(dict.fromkeys(missing if value is None else str(value) for value in found))


def groups_of(rows: Iterable[Row], order: Sequence[str]) -> list[Group]:
    """The lines of a table, the systems in ``order`` first."""
    found: dict[tuple, Group] = {}
    for row in rows:
        key = identity(row)
        if key in found:
            found[key].rows.append(row)
        else:
            found[key] = Group([row])
    places = {name: place for place, name in enumerate(order)}
    return sorted(found.values(), key=lambda group: places.get(group.system, len(places)))


def holm(values: Sequence[float]) -> list[float]:
    """p-values with Holm's (1979) correction for multiple comparisons, in the given order."""
    corrected, greatest = [0.0] * len(values), 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        greatest = max(greatest, min(1.0, (len(values) - rank) * values[at]))
        corrected[at] = greatest
    return corrected


@dataclass(frozen=True)
class Comparison:
    """The comparison of a group with the baseline.

    Args:
        p: the p-value of the test.
        corrected: p after Holm's correction for all comparisons of the table.
        test: name of the two-sided per-sentence test for single runs; empty for the one-tailed
            paired t-test over seeds.
    """

    p: float
    corrected: float
    test: str = ""


def compare(groups: Sequence[Group], table: Table) -> dict[int, Comparison]:
    """The comparisons with the table's baseline, by the group's index.

    The test is a t-test over seeds if the group shares at least two seeds with a baseline on the
    same data and vectors, and otherwise the group's own ``paired`` test.
    """
    found: dict[int, tuple[float, str]] = {}
    lower = table.best.get(table.compare) == "min"
    for place, group in enumerate(groups):
        base = baseline_of(group, groups, table)
        if group.system == table.baseline or base is None:
            continue
        ours, theirs = group.by_seed(table.compare), base.by_seed(table.compare)
        single = [row["paired"] for row in group.rows if table.baseline in row.get("paired", {})]
        if len(ours.keys() & theirs.keys()) > 1:
            better, worse = (theirs, ours) if lower else (ours, theirs)
            found[place] = paired_t_test(better, worse)[0], ""
        elif single:
            found[place] = single[0][table.baseline]["p"], single[0][table.baseline]["test"]
    corrected = holm([p for p, _ in found.values()])
    return {
        place: Comparison(p, after, test)
        for (place, (p, test)), after in zip(found.items(), corrected, strict=True)
    }


def baseline_of(group: Group, groups: Sequence[Group], table: Table) -> Group | None:
    """The baseline's group with the same data and vectors, and preferably the same settings."""
    known = [one for one in groups if one.system == table.baseline and one.setting == group.setting]
    alike = [one for one in known if one.settings == group.settings]
    return next(iter([*alike, *known]), None)
