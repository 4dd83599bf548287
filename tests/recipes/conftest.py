"""Fixtures for the tests of the recipes."""

import pytest
from recipe_runs import run, stub_python


@pytest.fixture
def recorded(tmp_path):
    """``recorded(script, …)`` returns the Python command lines that a script would run."""
    record = tmp_path / "record"
    stub = stub_python(tmp_path / "python", f"(printf '%s\\t' \"$@\"; echo) >> {record}")

    def commands(script, *options, **env):
        record.write_text("")
        run(script, *options, PYTHON=stub, **env)
        lines = [line.split("\t")[:-1] for line in record.read_text().splitlines()]
        assert all(line[0] == "-m" for line in lines)
        return [line[1:] for line in lines]

    return commands


@pytest.fixture(scope="session", autouse=True)
def quick_scripts(warm_python):
    """Run scripts unchanged, but with a Python that has torch imported already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHON", warm_python)
        yield
