"""Building and loading the compiled engine, and what happens without it."""

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairseq_casrnn import recurrence
from fairseq_casrnn.recurrence import cpp
from fairseq_casrnn.recurrence.sources import digest

compiled = pytest.mark.skipif(
    "cpp" not in recurrence.installed(), reason="engine cpp is not compiled"
)
ROOT = Path(__file__).resolve().parents[2]


@compiled
@pytest.mark.skipif(sys.platform != "linux", reason="other systems' compilers may lack OpenMP")
def test_the_extension_uses_torchs_threads():
    """It must not load a second OpenMP library beside torch's."""
    module = cpp.extension()[0]
    assert module.has_threads
    library = Path(module.__file__)
    used = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    theirs = [line for line in maps.splitlines() if "torch/lib/libgomp" in line]
    assert not theirs or "libgomp.so.1 " in used  # torch's library, which is loaded first


@pytest.fixture
def library(monkeypatch, tmp_path):
    """A file in place of the compiled extension."""
    path = tmp_path / "_cpp.so"
    path.touch()
    monkeypatch.setattr(cpp, "PACKAGE", tmp_path.resolve())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(path)))
    return path


@pytest.fixture
def import_as(monkeypatch, library):
    """A function that sets the result of importing the extension and calls ``extension()``."""

    def set_result(result):
        def import_module(name):
            assert name == "fairseq_casrnn._cpp"
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(cpp.importlib, "import_module", import_module)
        cpp.extension.cache_clear()
        return cpp.extension()

    yield set_result
    cpp.extension.cache_clear()


def test_reasons_not_to_use_the_extension(import_as):
    good = SimpleNamespace(torch_version=torch.__version__)
    assert import_as(good) == (good, None)
    for result, reason in (
        (ModuleNotFoundError("no"), "it was not compiled at installation"),
        (ImportError("undefined symbol: x"), r"cannot be loaded \(undefined symbol: x\)"),
        (SimpleNamespace(torch_version="1.4.0"), "compiled for torch 1.4 "),
    ):
        module, why = import_as(result)
        assert module is None
        assert re.search(reason, why)


def test_extension_compiled_from_other_sources_is_not_loaded(import_as, library, tmp_path):
    """Any change of a source counts; an installed wheel has no sources to compare with."""
    (tmp_path / "csrc").mkdir()
    good = SimpleNamespace(torch_version=torch.__version__)
    assert import_as(good) == (good, None)
    source = tmp_path / "csrc" / "loop.cpp"
    source.write_text("int a;")
    stale = "it was compiled from other C++ sources than this package's; install again"
    assert import_as(good) == (None, stale)  # the file names no sources
    library.write_bytes(f"\0fairseq_casrnn sources: {digest(tmp_path)};\0".encode())
    assert import_as(good) == (good, None)
    source.write_text("int b;")
    assert import_as(good) == (None, stale)
    source.write_text("int a;")
    source.rename(tmp_path / "csrc" / "loops.cpp")
    assert import_as(good) == (None, stale)


def test_extension_of_another_copy_is_not_loaded(import_as, monkeypatch, tmp_path):
    """The import finds the extension of a copy of the package that is installed as editable."""
    good = SimpleNamespace(torch_version=torch.__version__)
    assert import_as(good) == (good, None)
    monkeypatch.setattr(cpp, "PACKAGE", tmp_path / "clone" / "fairseq_casrnn")
    module, why = import_as(good)
    assert module is None
    assert why == (
        f"it was compiled for the copy of this package in {tmp_path}, and this one is in "
        f"{tmp_path}/clone/fairseq_casrnn; install this one: pip install --no-build-isolation -e "
        f"{tmp_path}/clone"
    )


def test_a_clone_beside_the_installed_package(monkeypatch, tmp_path):
    """``pip install .`` compiles the installed copy; in the clone Python finds the clone."""
    clone, installed = tmp_path / "clone" / "fairseq_casrnn", tmp_path / "lib" / "fairseq_casrnn"
    for folder in (clone, installed):
        folder.mkdir(parents=True)
    monkeypatch.setattr(cpp, "PACKAGE", clone.resolve())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.chdir(clone.parent)
    monkeypatch.setattr(sys, "path", ["", str(clone.parent), str(installed.parent)])
    assert cpp.extension.__wrapped__() == (None, "it was not compiled at installation")
    (installed / "_cpp.cpython-311.so").touch()
    module, why = cpp.extension.__wrapped__()
    assert module is None
    assert f"was compiled for the copy of this package in {installed}, " in why


def test_extension_for_another_processor_is_not_loaded(import_as, monkeypatch, library):
    """An instruction that the processor lacks would end the process."""
    library.write_bytes(b"\x7fELF\0fairseq_casrnn needs: avx2 avx512f avx512_bf16;\0")
    good = SimpleNamespace(torch_version=torch.__version__)
    for flags, lacking in (
        ("avx2 fma", "avx512_bf16, avx512f,"),
        ("avx2 avx512f avx512_bf16", None),
        ("", None),  # unknown
    ):
        monkeypatch.setattr(cpp, "instructions", lambda flags=flags: frozenset(flags.split()))
        module, why = import_as(good)
        assert (module is good) == (lacking is None)
        assert lacking is None or f"for a processor with {lacking}" in why


@compiled
def test_required_instructions_of_the_extension():
    if not cpp.instructions():
        pytest.skip("the processor's instructions are not known")
    needs = cpp.required_instructions(Path(cpp.extension()[0].__file__).read_bytes())
    least = {"AVX512": {"avx2", "avx512f"}, "AVX2": {"avx2"}}
    assert least.get(cpp.extension()[0].instruction_set, set()) <= needs <= cpp.instructions()


WITHOUT_EXTENSION = """
import logging, sys
sys.modules["fairseq_casrnn._cpp"] = None  # makes its import fail
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import torch
from fairseq_casrnn import layers, recurrence
for _ in range(2):
    layers.LSTM(2, 3)(torch.zeros(4, 1, 2))
print(sorted(set(recurrence.installed()) - {"triton"}))
for _ in range(2):
    layers.LSTM(2, 3, engine="cpp")(torch.zeros(4, 1, 2))
"""


def test_without_the_extension_eager_runs():
    env = {k: v for k, v in os.environ.items() if k != "CASRNN_ENGINE"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTENSION],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=env,
    )
    assert done.stdout.splitlines() == [
        "engine 'cpp' is not available, 'eager' runs instead: it was not compiled at installation",
        "['eager', 'reference']",
    ]


@pytest.mark.full
def test_building_without_a_compiler_succeeds(tmp_path):
    env = {**os.environ, "CC": "no-such-compiler", "CXX": "no-such-compiler"}
    build = [sys.executable, "setup.py", "-q", "build_ext", "-b", tmp_path, "-t", tmp_path]
    done = subprocess.run(build, capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    message = [line for line in done.stderr.splitlines() if line.startswith("fairseq-casrnn:")]
    assert len(message) == 1
    assert "engine 'cpp' not compiled" in message[0]
    assert "no-such-compiler" in message[0]
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.full
def test_building_removes_the_earlier_extension(tmp_path):
    """The earlier file may be for another processor or torch, also if there is no compiler now."""
    env = {**os.environ, "CC": "no-such-compiler", "CXX": "no-such-compiler"}
    (tmp_path / "fairseq_casrnn").mkdir()
    stale = tmp_path / "fairseq_casrnn" / f"_cpp{sysconfig.get_config_var('EXT_SUFFIX')}"
    stale.write_bytes(b"stale")
    os.utime(stale, (2**32, 2**32))  # newer than every source
    build = [sys.executable, "setup.py", "-q", "build_ext", "-b", tmp_path, "-t", tmp_path]
    done = subprocess.run(build, capture_output=True, text=True, cwd=ROOT, env=env)
    assert "engine 'cpp' not compiled" in done.stderr
    assert not stale.exists()
