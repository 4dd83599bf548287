"""The wheel, the pinned versions, the command and the Makefile."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import fairseq_casrnn
from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError

PACKAGE = Path(fairseq_casrnn.__file__).parent
ROOT = PACKAGE.parent


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the package's sources, so that building leaves no build/ behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    if (ROOT / "README.md").exists():
        shutil.copy(ROOT / "README.md", source)
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("fairseq_casrnn", "hydra_plugins"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    return source


@pytest.fixture(scope="module")
def wheel(source):
    """The wheel that ``pip install .`` builds."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "."]
    # Without a compiler the compiled engine is left out, which saves time.
    env = {**os.environ, "CC": "false", "CXX": "false"}
    subprocess.run([*build, "-w", "dist"], cwd=source, env=env, check=True)
    (file,) = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.fixture(scope="module")
def metadata(wheel):
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_wheel_holds_every_module(wheel):
    folders = (PACKAGE, ROOT / "hydra_plugins")
    kinds = (".html", ".py", ".yaml")
    files = [p for folder in folders for p in folder.rglob("*.*") if p.suffix in kinds]
    here = {str(p.relative_to(ROOT)) for p in files}
    assert here - set(wheel.namelist()) == set()
    assert "fairseq_casrnn/py.typed" in wheel.namelist()
    assert {name.partition("/")[0] for name in wheel.namelist() if ".dist-info" not in name} == {
        "fairseq_casrnn",
        "hydra_plugins",
    }


def test_source_distribution_can_compile_the_engine(source):
    """The C++ files of several folders include each other."""
    build = [sys.executable, "setup.py", "-q", "sdist"]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (file,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(file) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    cpp = [path for path in PACKAGE.rglob("*") if path.suffix in (".cpp", ".h")]
    assert {str(path.relative_to(ROOT)) for path in cpp} - packed == set()
    for path in cpp:
        for name in re.findall(r'^#include "(.+)"', path.read_text("utf-8"), re.MULTILINE):
            included = (path.parent / name).resolve()
            assert str(included.relative_to(ROOT)) in packed, f"{path.name} includes {name}"


def test_metadata(metadata):
    assert metadata["Version"] == fairseq_casrnn.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"dev", "docs", "plots", "serve"} <= set(metadata.get_all("Provides-Extra"))


def test_pinned_versions_satisfy_the_requirements(metadata):
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    for text in metadata.get_all("Requires-Dist"):
        requirement = Requirement(text)
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert requirement.specifier.contains(Version(pins[name])), text


# A user's environment, even if make runs these tests.
SHELL = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFL"))}


def test_make_test_installs_only_what_is_needed(tmp_path):
    def plan(*args):
        make = ["make", "-n", f"VENV={tmp_path}", "PYTHON=python3", *args]
        return subprocess.check_output(make, cwd=ROOT, env=SHELL, text=True).splitlines()

    assert any("pip install" in line for line in plan("test"))
    (tmp_path / ".installed").touch()
    *installing, last = plan("test")
    assert last == f"{tmp_path}/bin/python -m pytest"
    installed = [line.split("&&")[0].split()[-1] for line in installing if " pip install " in line]
    assert installed == ["triton"]  # only the tests need it
    (tmp_path / ".installed-triton").touch()
    assert plan("test") == [last]
    assert [line.split()[-1] for line in plan("demo")] == ["examples/quickstart/run.sh"]
    assert any("pip install" in line for line in plan("-W", "constraints.txt", "test"))


def test_make_without_a_python(tmp_path):
    make = ["make", f"VENV={tmp_path}", "PYTHON=no-such-python", "install"]
    done = subprocess.run(make, cwd=ROOT, env=SHELL, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "error: Python >= 3.11 is needed" in done.stderr


@pytest.mark.parametrize("wheel_cached", [True, False])
def test_make_without_a_compiler(tmp_path, wheel_cached):
    """It continues if pip has a cached wheel of fairseq, and is an error otherwise."""
    tools, venv = tmp_path / "tools", tmp_path / "venv"
    for folder in (tools, venv / "bin"):
        folder.mkdir(parents=True)
    for name in ("sh", "touch"):
        (tools / name).symlink_to(shutil.which(name))
    for name in ("pip", "python"):
        program = venv / "bin" / name
        program.write_text(
            f"#!/bin/sh\ncase $* in *fairseq-fixed*) exit {1 - wheel_cached};; esac\n"
        )
        program.chmod(0o755)
    make = [shutil.which("make"), f"VENV={venv}", f"PYTHON={sys.executable}", "TORCH_INDEX="]
    env = {**SHELL, "PATH": str(tools), "CXX": "no-such-compiler"}
    done = subprocess.run(
        [*make, "install"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert "warning: no C++ compiler: engine 'cpp' is left out" in done.stderr
    assert (done.returncode == 0) == wheel_cached == (venv / ".installed").exists()
    assert ("error: fairseq must be compiled; install g++" in done.stderr) != wheel_cached


def test_user_dir_command():
    done = subprocess.run(["casrnn", "user-dir"], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == PACKAGE.resolve()


def test_command_prints_a_user_error_and_exits_with_2(monkeypatch, capsys):
    def fail(args):
        raise UserError("no such thing; try another")

    monkeypatch.setattr(cli, "_user_dir", fail)
    assert cli.main(["user-dir"]) == 2
    assert capsys.readouterr().err == "error: no such thing; try another\n"


@pytest.mark.parametrize("command", [["average", "--outpt", "x"], ["averag"], ["data", "dyck"]])
def test_wrong_options_are_one_line_errors(capsys, command):
    with pytest.raises(SystemExit) as stop:
        cli.main(command)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.endswith("; see --help\n")
    assert error.count("\n") == 1


def test_version_command(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert fairseq_casrnn.__version__ in capsys.readouterr().out
