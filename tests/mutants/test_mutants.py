"""The table of mutants is consistent with the code and the tests."""

import ast
import shlex

import pytest

from .run import ROOT, Mutant, read


@pytest.mark.parametrize("mutant", read(), ids=lambda mutant: mutant.breaks)
def test_a_mutant_changes_one_place(mutant):
    ast.parse(mutant.apply(ROOT))
    assert mutant.old != mutant.new
    files, _, name = mutant.tests.partition(" -k ")
    paths = [ROOT / file for file in shlex.split(files)]
    assert paths
    assert all(path.exists() for path in paths)
    if name:  # part of the name of a test, or of its parameters
        found = (
            file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])
        )
        assert any(name in file.read_text("utf-8") for file in found)


def test_every_folder_has_mutants():
    package = ROOT / "fairseq_casrnn"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert folders <= {mutant.file.partition("/")[0] for mutant in read()}


def test_text_that_is_missing_or_not_unique():
    for old in ("no such text", "import"):
        mutant = Mutant("", "cells/base.py", old, "", "")
        with pytest.raises(ValueError, match=r"cells/base.py has .* not once"):
            mutant.apply(ROOT)
