"""Use one thread per test process, and put the environment's commands on PATH."""

import os
import sys
from pathlib import Path

# This must precede the import of torch. Programs that the tests start inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

import pytest
import torch
from tiers import pytest_collection_modifyitems  # noqa: F401 - a hook of pytest
from warm_python import WarmPython

import fairseq_casrnn

# Patches that are limited to fairseq's programs are not applied in pytest.
fairseq_casrnn.register()
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    """Make random numbers independent of earlier tests in the same process."""
    torch.manual_seed(1)


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory):
    """The path of a ``python`` that starts quickly; see warm_python.py."""
    with WarmPython(tmp_path_factory.mktemp("warm")) as python:
        yield str(python.command)
