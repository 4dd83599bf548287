"""An error of the user's own code keeps its traceback; the same error of fairseq's is explained."""

import json
import site
import sys
from pathlib import Path

import pytest

from fairseq_casrnn.diagnostics.explain import explain
from fairseq_casrnn.errors import UserError

OPENS = "def read(path):\n    return open(path)\n"
LIBRARY = Path(pytest.__file__).parent.parent
STANDARD = Path(json.__file__).parent.parent
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
        fairseq = function(CALLS, "fairseq.trainer", Path(LIBRARY, "trainer.py"))
        with pytest.raises(FileNotFoundError) as caught:
            fairseq(function(OPENS, name, file), tmp_path / "missing")
        return caught.value

    return raised


def test_of_a_model_in_the_user_dir(error, tmp_path):
    assert explain(error("my_plugin.model", tmp_path / "my_plugin" / "model.py")) is None


def test_of_a_model_under_the_prefix_of_python(error):
    """As in /usr/src, where Python is in /usr."""
    assert explain(error("my_plugin.model", Path(sys.prefix, "src", "model.py"))) is None


def test_of_a_model_beside_the_library(error):
    folder = STANDARD.with_name(STANDARD.name + "-models")
    assert explain(error("my_plugin.model", folder / "model.py")) is None


@pytest.mark.parametrize("name", ["fairseq_casrnn.data.text", "numpy.lib", "json"])
@pytest.mark.parametrize("folder", [LIBRARY, STANDARD, site.getusersitepackages()])
def test_of_what_is_installed(error, name, folder):
    assert "missing does not exist" in explain(error(name, Path(folder, "module.py")))


def test_of_this_package_in_a_checkout(error, tmp_path):
    assert "missing does not exist" in explain(error("fairseq_casrnn.data.text", tmp_path / "x.py"))


def test_a_mistake_that_own_code_reports():
    """A UserError is meant for the user, whoever raises it."""
    source = "def fail(kind):\n    raise kind('give another')\n"
    fairseq = function(CALLS, "fairseq.trainer", Path(LIBRARY, "trainer.py"))
    with pytest.raises(UserError) as caught:
        fairseq(function(source, "my_plugin.model", "/home/me/my_plugin.py"), UserError)
    assert explain(caught.value) == "give another"
