"""An error of the user's own code keeps its traceback; the same error of fairseq's is explained."""

from pathlib import Path

import pytest

from fairseq_casrnn.diagnostics import frames
from fairseq_casrnn.diagnostics.explain import explain
from fairseq_casrnn.errors import UserError

OPENS = "def read(path):\n    return open(path)\n"
CALLS = "def call(function, *args):\n    return function(*args)\n"


def function(source: str, name: str, file) -> object:
    """The function of ``source``, as of the module ``name`` in ``file``."""
    namespace = {"__name__": name}
    exec(compile(source, str(file), "exec"), namespace)
    return namespace[source.split("(")[0].removeprefix("def ")]


@pytest.fixture
def error(tmp_path):
    """What comes of opening a missing file in the module ``name``, which fairseq calls."""

    def raised(name: str, file) -> BaseException:
        fairseq = function(CALLS, "fairseq.trainer", Path(frames.LIBRARIES[0], "trainer.py"))
        with pytest.raises(FileNotFoundError) as caught:
            fairseq(function(OPENS, name, file), tmp_path / "missing")
        return caught.value

    return raised


def test_of_a_model_in_the_user_dir(error, tmp_path):
    assert explain(error("my_plugin.model", tmp_path / "my_plugin" / "model.py")) is None


@pytest.mark.parametrize("name", ["fairseq_casrnn.data.text", "numpy.lib", "json"])
def test_of_what_is_installed(error, name):
    assert "missing does not exist" in explain(error(name, Path(frames.LIBRARIES[0], "module.py")))


def test_of_this_package_in_a_checkout(error, tmp_path):
    assert "missing does not exist" in explain(error("fairseq_casrnn.data.text", tmp_path / "x.py"))


def test_a_mistake_that_own_code_reports():
    """A UserError is meant for the user, whoever raises it."""
    source = "def fail(kind):\n    raise kind('give another')\n"
    fairseq = function(CALLS, "fairseq.trainer", Path(frames.LIBRARIES[0], "trainer.py"))
    with pytest.raises(UserError) as caught:
        fairseq(function(source, "my_plugin.model", "/home/me/my_plugin.py"), UserError)
    assert explain(caught.value) == "give another"
