"""Which tests of a ``sampled`` matrix ``make test`` runs."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from tiers import cover


def rows(**axes):
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def combinations_of(kept, table, *names):
    return {tuple(table[number][name] for name in names) for number in kept}


def test_strength_1_covers_every_value_with_few_rows():
    table = rows(cell="abcdef", engine="xyz", last=[False, True])
    kept = cover(table, 1)
    assert len(kept) == 6
    for name, count in (("cell", 6), ("engine", 3), ("last", 2)):
        assert len(combinations_of(kept, table, name)) == count


def test_values_are_used_equally_often():
    table = rows(cell="abcdef", engine="xyz")
    engines = [table[number]["engine"] for number in cover(table, 1)]
    assert [engines.count(engine) for engine in "xyz"] == [2, 2, 2]


def test_every_pair_is_covered():
    table = rows(cell="abcdef", engine="xyz", last=[False, True])
    kept = cover(table)
    assert len(kept) < len(table)
    for names in (("cell", "engine"), ("cell", "last"), ("engine", "last")):
        assert combinations_of(kept, table, *names) == combinations_of(
            range(len(table)), table, *names
        )


def test_a_single_axis_is_covered_completely():
    assert cover(rows(cell="abc")) == {0, 1, 2}
    assert cover(rows(cell="abc"), 1) == {0, 1, 2}


MATRIX = """
import pytest

pytestmark = pytest.mark.sampled(1)

@pytest.mark.parametrize(("cell", "layer"), [("a", 0), ("a", 1), ("b", 0)])
@pytest.mark.parametrize("engine", [{"x": 1}, {"y": 1}])
def test_matrix(cell, layer, engine):
    pass

@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("row", range(7))
def test_table(row):
    pass

def test_alone():
    pass
"""


@pytest.mark.parametrize(("options", "number"), [((), 7), (("-m", "full"), 7)])
def test_tiers(options, number, tmp_path, request):
    """Names in one ``parametrize`` are one axis; ``make test-full`` runs the omitted tests."""
    (tmp_path / "conftest.py").write_text("from tiers import pytest_collection_modifyitems\n")
    (tmp_path / "test_it.py").write_text(MATRIX)
    settings = ["-c", request.config.inipath, "--rootdir", tmp_path, "-n", "0", "--collect-only"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *settings,
            *options,
            tmp_path,
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("::") == number
