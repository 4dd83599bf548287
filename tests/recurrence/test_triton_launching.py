"""Kernels are launched again without Triton's own lookup."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from simulated_gpu import run as simulated

from fairseq_casrnn.recurrence.triton import launching as triton_launching

from .test_triton import INTERPRETING


class Kernel:
    """Imitates Triton: kernels are launched by name, and compiled kernels by position."""

    def __init__(self):
        names = {"x": 2, "y": 2, "rows": 1, "SIZE": 0}
        self.params = [
            SimpleNamespace(name=name, is_constexpr=kind == 0, do_not_specialize=kind == 1)
            for name, kind in names.items()
        ]
        self.numbers, self.lookups, self.launched = itertools.count(), [], []

    def __getitem__(self, grid):
        def search(**arguments):
            self.lookups.append((grid, arguments))
            return Compiled(self, next(self.numbers))

        return search


class Compiled:
    def __init__(self, kernel, number):
        self.kernel, self.number = kernel, number

    def __getitem__(self, grid):
        return lambda *values: self.kernel.launched.append((self.number, grid, values))


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(triton_launching, "compiled_kernels", {})
    return Kernel()


def test_the_second_launch_is_direct(kernel):
    x, y, other = torch.zeros(4), torch.zeros(4), torch.ones(8)
    triton_launching.run(kernel, (3,), SIZE=5, x=x, y=y, rows=7, num_warps=8)
    assert kernel.lookups == [((3,), {"SIZE": 5, "x": x, "y": y, "rows": 7, "num_warps": 8})]
    triton_launching.run(kernel, (2, 4), SIZE=5, x=other, y=y, rows=8, num_warps=8)
    assert len(kernel.lookups) == 1
    ((number, grid, values),) = kernel.launched
    assert (number, grid[:3]) == (0, (2, 4, 1))
    assert values[0] is other
    assert values[1] is y
    assert values[2:] == (8, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"SIZE": 6},
        {"x": None},
        {"x": torch.zeros(4, dtype=torch.float16)},
        {"x": torch.zeros(5)[1:]},  # with another alignment
        {"y": torch.zeros(4, dtype=torch.int64)},
        {"rows": 2**31},
    ],
    ids=str,
)
def test_lookup_of_another_kernel(kernel, change):
    given = {"x": torch.zeros(4), "y": torch.zeros(4), "rows": 7, "SIZE": 5}
    triton_launching.run(kernel, (1,), **given)
    triton_launching.run(kernel, (1,), **given | change)
    triton_launching.run(kernel, (1,), **given)
    assert len(kernel.lookups) == 2
    assert [number for number, *_ in kernel.launched] == [0]


def test_one_lookup_per_gpu(kernel, monkeypatch):
    given = {"x": torch.zeros(4), "y": None, "rows": 7, "SIZE": 5}
    for device in (0, 1, 0, 1):
        monkeypatch.setattr(triton_launching, "current_device", lambda number=device: number)
        triton_launching.run(kernel, (1,), **given)
    assert len(kernel.lookups) == 2
    assert [number for number, *_ in kernel.launched] == [0, 1]


def test_kernels_that_are_only_compiled_are_not_cached(kernel, monkeypatch):
    monkeypatch.setattr(Kernel, "__getitem__", lambda self, grid: lambda **_: None)
    for _ in range(2):
        triton_launching.run(kernel, (1,), x=None, y=None, rows=1, SIZE=1)
    assert not triton_launching.compiled_kernels


MISMATCH = "AST constructor recursion depth mismatch (before=219, after=160)"


@pytest.mark.parametrize(("message", "failures"), [(MISMATCH, 2), (MISMATCH, 99), ("other", 1)])
def test_another_thread_disturbs_the_parser(kernel, monkeypatch, message, failures):
    """The launch is repeated, but not for ever, and not after other errors."""
    errors = [SystemError(message)] * failures
    lookup = Kernel.__getitem__

    def search(self, grid):
        def launch(**arguments):
            if errors:
                raise errors.pop()
            return lookup(self, grid)(**arguments)

        return launch

    monkeypatch.setattr(Kernel, "__getitem__", search)
    arguments = {"x": None, "y": None, "rows": 1, "SIZE": 1}
    if failures == 2:
        triton_launching.run(kernel, (1,), **arguments)
        assert kernel.lookups == [((1,), arguments)]
    else:
        with pytest.raises(SystemError, match=re.escape(message)):
            triton_launching.run(kernel, (1,), **arguments)
        assert not kernel.lookups


@pytest.mark.skipif(INTERPRETING, reason="for Triton's compiler")
@pytest.mark.skipif(shutil.which(simulated.COMPILERS[1]) is None, reason="there is no C compiler")
@pytest.mark.skipif(torch.version.cuda is not None, reason="torch looks for libcuda, too")
def test_arguments_that_reach_the_driver(tmp_path):
    """With Triton's launcher, looked up and directly; see :mod:`.recorded_launches`."""
    pytest.importorskip("triton")
    script = Path(__file__).parent / "recorded_launches.py"
    cache = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    environment = {**os.environ, **simulated.driver(tmp_path), **cache}
    command = [sys.executable, script, tmp_path / "libcuda.so.1"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert set(result.stdout.split()) >= {
        *("forward_sequence", "backward_sequence", "decode_forward", "decode_backward"),
        *("forward_step", "backward_step", "forward_rows", "choose_candidates"),
    }
