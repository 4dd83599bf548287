"""One thread per test process, and the environment's commands on PATH."""

import os
import sys
from pathlib import Path

# Before torch is imported; pytest runs two workers, and the programs they start inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

import pytest
import torch
from tiers import pytest_collection_modifyitems  # noqa: F401 - a hook of pytest
from warm_python import WarmPython

import fairseq_casrnn

# While the program is pytest: some changes are made in fairseq's programs only.
fairseq_casrnn.register()
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_random_numbers():
    """Whatever tests ran before in this process."""
    torch.manual_seed(1)


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory):
    """A path to be used as ``python``: see there."""
    with WarmPython(tmp_path_factory.mktemp("warm")) as python:
        yield str(python.command)
