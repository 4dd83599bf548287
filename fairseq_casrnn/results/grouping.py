"""From rows to the lines of a table: seeds are averaged, systems compared."""

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
        """What else tells it from other lines."""
        return self.rows[0].get("settings", {})

    @property
    def seeds(self) -> int:
        """How many runs it stands for; a row of means beside those of single seeds adds none."""
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

    def mean(self, name: str) -> float | None:
        """The mean of a metric; None where there is no number."""
        values = self.values(name)
        if len(values) == 1 and isinstance(values[0], dict):
            return values[0]["mean"]
        numbers = [value for value in values if isinstance(value, (int, float))]
        return mean_deviation(numbers)[0] if numbers else None

    def texts(self, name: str, missing: str = "unknown") -> list[str]:
        """The different values of a field; ``missing`` is that of seeds which lack it."""
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
    """p-values corrected for that many comparisons (Holm 1979), in the order given."""
    corrected, greatest = [0.0] * len(values), 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        greatest = max(greatest, min(1.0, (len(values) - rank) * values[at]))
        corrected[at] = greatest
    return corrected


def compare(groups: Sequence[Group], table: Table) -> dict[int, tuple[float, float]]:
    """p of a one-tailed paired t-test over seeds against the baseline, and after Holm's correction.

    Returns:
        Both for each group, by its place, that has two seeds or more in common with the baseline.
    """
    base = [group for group in groups if group.system == table.baseline]
    if not base:
        return {}
    theirs, found = base[0].by_seed(table.compare), {}
    lower = table.best.get(table.compare) == "min"
    for place, group in enumerate(groups):
        ours = group.by_seed(table.compare)
        if group is base[0] or len(ours.keys() & theirs.keys()) < 2:
            continue
        better, worse = (theirs, ours) if lower else (ours, theirs)
        found[place] = paired_t_test(better, worse)[0]
    corrected = holm(list(found.values()))
    return {place: (p, q) for (place, p), q in zip(found.items(), corrected, strict=True)}
