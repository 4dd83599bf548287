"""Helpers for the tests of cells, engines and layers: parameter matrix, sizes, tolerances.

The matrix is read from the package's registries, so that a cell added to ``cells.FAMILIES`` or an
engine added to ``recurrence.ENGINES`` is tested without a change here.
"""

from __future__ import annotations

import contextlib
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cells.specification import SETTINGS

from fairseq_casrnn import cells, layers, recurrence

# Rounding errors of double precision after a few steps and layers.
DOUBLE = {"rtol": 1e-10, "atol": 1e-10}
# Rounding errors of single precision, where gradients are sums over steps and sequences.
SINGLE = {"rtol": 1e-4, "atol": 1e-5}
# Each product and output is rounded to the few bits of the dtype.
HALVES = {
    torch.bfloat16: {"rtol": 0.03, "atol": 0.03},
    torch.float16: {"rtol": 0.004, "atol": 0.004},
}


@contextlib.contextmanager
def three_threads():
    """Give torch and the compiled engine three threads each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


T, B, I, H, L = 5, 3, 7, 4, 2  # all different, to detect swapped axes
LENGTHS = [3, 5, 1]  # neither sorted nor reversed

# Includes triton where it runs in its interpreter (see tests/recurrence/test_triton.py).
ENGINES = tuple(recurrence.installed())

needs_triton = pytest.mark.skipif(
    recurrence.ENGINES["triton"].missing is not None, reason="Triton is not installed"
)


@dataclass(frozen=True)
class Case:
    """A family of cells with one setting of its options."""

    name: str
    options: dict = field(default_factory=dict, hash=False)

    def __str__(self):
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def reads_lower_cell(self) -> bool:
        return any(cell.lower_cell for cell in self.layer(1, 1, 2).cells)

    @property
    def is_compiled(self) -> bool:
        """Whether the family has kernels; other cells run in PyTorch operations everywhere."""
        return bool(cells.FAMILIES[self.name].kernels)

    @property
    def directions(self):
        """The values of ``bidirectional`` that the family supports."""
        return (False, True) if self.reads_lower_cell else (False, True, "interleaved")

    def layer(self, input_size=I, hidden_size=H, num_layers=L, **kwargs):
        """Return the family's layer with its usual initial values."""
        options = SimpleNamespace(**self.options)
        return layers.build(
            self.name, input_size, hidden_size, num_layers, options=options, **kwargs
        )

    def random(self, *sizes, seed=0, dtype=torch.float64, **kwargs):
        """Return the layer with random values for all parameters, biases and peepholes included."""
        return randomize(self.layer(*sizes, **kwargs).to(dtype), seed)


CASES = [Case(name, options) for name in cells.FAMILIES for options in SETTINGS.get(name, [{}])]
# One case per family, for tests that do not depend on the options.
FAMILIES = list({case.name: case for case in reversed(CASES)}.values())[::-1]

COMPILED_CASES = [case for case in CASES if case.is_compiled]
COMPILED_FAMILIES = [case for case in FAMILIES if case.is_compiled]

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_family = pytest.mark.parametrize("case", FAMILIES, ids=str)
every_compiled_case = pytest.mark.parametrize("case", COMPILED_CASES, ids=str)
every_compiled_family = pytest.mark.parametrize("case", COMPILED_FAMILIES, ids=str)
every_direction = pytest.mark.parametrize(
    ("case", "bidirectional"),
    [
        pytest.param(case, bidirectional, id=f"{case}-{bidirectional}")
        for case in FAMILIES
        for bidirectional in case.directions
    ],
)
every_engine = pytest.mark.parametrize("engine", ENGINES)
# For tests that compare an engine with ``reference``.
every_other = pytest.mark.parametrize("engine", [name for name in ENGINES if name != "reference"])


def randomize(module, seed=0):
    """Set every parameter of ``module`` to random values at which no gate is saturated."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return module


def rand(*shape, seed=0, dtype=torch.float64):
    """Normal random numbers from a generator with its own seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def side_input(cell, tensor):
    """Return ``tensor`` as the keyword argument ``lower_c`` or ``mixture`` of ``cell``."""
    return {"lower_c" if cell.lower_cell else "mixture": tensor}


def rand_state(layer, batch=B, seed=1):
    """A random state of ``layer`` in the form its forward takes."""
    dtype = layer.weight_hh_l0.dtype
    shape = (layer.num_layers * layer.num_directions, batch, layer.hidden_size)
    h = rand(*shape, seed=seed, dtype=dtype)
    return (h, rand(*shape, seed=seed + 1, dtype=dtype)) if layer.has_cell else h


def as_tuple(state):
    """Return a state as a tuple of one or two tensors."""
    return state if isinstance(state, tuple) else (state,)


def flat(result):
    """Return the result of a layer as a flat tuple: output, h_n and, if the cell has one, c_n."""
    output, state = result
    return (output, *as_tuple(state))


def weighted(tensors, seed=3):
    """Return the sum of all elements of ``tensors``, each with a random weight."""
    return sum((t * rand(*t.shape, seed=seed + i).to(t)).sum() for i, t in enumerate(tensors))


def gradients(scalar, tensors):
    """Return the gradients of ``scalar``: zeros for tensors that it does not depend on."""
    tensors = list(tensors)
    grads = torch.autograd.grad(scalar, tensors, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, grads, strict=True)]


def assert_close(actual, expected, tolerance=DOUBLE, names=None):
    """Compare element by element; NaN and different shapes or dtypes are errors, too."""
    pairs = zip(actual, expected, strict=True)
    for i, (a, e) in enumerate(pairs):
        label = i if names is None else names[i]
        torch.testing.assert_close(a, e, **tolerance, msg=lambda m, n=label: f"{n}: {m}")


def table_rows(text):
    """Return the cells of each line of the Markdown tables in ``text``."""
    return [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]


def unpack_golden(archive: str, folder: Path) -> None:
    """Unpack an archive of tests/golden, a model of version 0.1.0."""
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on
    with tarfile.open(Path(__file__).parent / "golden" / archive) as files:
        files.extractall(folder, **safely)
