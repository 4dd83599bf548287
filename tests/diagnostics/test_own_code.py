"""An error in the user's own code keeps its traceback; the same error in a library is explained."""

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
    """The function ``name`` of ``source``, compiled as if it were in ``file``."""
    namespace = {"__name__": name}
    exec(compile(source, str(file), "exec"), namespace)
    return namespace[source.split("(")[0].removeprefix("def ")]


@pytest.fixture
def error(tmp_path):
    """``error(name, file)``: an error in the module ``name``, which is called by fairseq."""

    def raised(name: str, file) -> BaseException:
        fairseq = function(CALLS, "fairseq.trainer", Path(LIBRARY, "trainer.py"))
        with pytest.raises(FileNotFoundError) as caught:
            fairseq(function(OPENS, name, file), tmp_path / "missing")
        return caught.value

    return raised


def test_error_in_the_user_dir(error, tmp_path):
    assert explain(error("my_plugin.model", tmp_path / "my_plugin" / "model.py")) is None


def test_error_in_user_code_under_the_prefix_of_python(error):
    """A model in /usr/src is user code although Python's prefix is /usr."""
    assert explain(error("my_plugin.model", Path(sys.prefix, "src", "model.py"))) is None


def test_error_in_user_code_beside_the_library(error):
    folder = STANDARD.with_name(STANDARD.name + "-models")
    assert explain(error("my_plugin.model", folder / "model.py")) is None


@pytest.mark.parametrize("name", ["fairseq_casrnn.data.text", "numpy.lib", "json"])
@pytest.mark.parametrize("folder", [LIBRARY, STANDARD, site.getusersitepackages()])
def test_error_in_an_installed_library(error, name, folder):
    assert "missing does not exist" in explain(error(name, Path(folder, "module.py")))


def test_error_in_a_checkout_of_this_package(error, tmp_path):
    assert "missing does not exist" in explain(error("fairseq_casrnn.data.text", tmp_path / "x.py"))


def test_user_error_of_user_code():
    """A UserError is meant for the user, no matter which code raises it."""
    source = "def fail(kind):\n    raise kind('give another')\n"
    fairseq = function(CALLS, "fairseq.trainer", Path(LIBRARY, "trainer.py"))
    with pytest.raises(UserError) as caught:
        fairseq(function(source, "my_plugin.model", "/home/me/my_plugin.py"), UserError)
    assert explain(caught.value) == "give another"
