"""The engine triton. test_engines.py compares its results with the reference.

Without a GPU these tests run in Triton's interpreter, in a process of its own because the
interpreter is chosen when Triton is imported.
"""

import itertools
import math
import os
import re
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import (
    DOUBLE,
    FAMILIES,
    HALVES,
    SINGLE,
    assert_close,
    every_case,
    every_family,
    gradients,
    needs_triton,
    rand,
    side_input,
    weighted,
)

from fairseq_casrnn import recurrence
from fairseq_casrnn.layers import LSTM
from fairseq_casrnn.recurrence import InputProduct
from fairseq_casrnn.recurrence.triton import barriers
from fairseq_casrnn.recurrence.triton import launching as triton_launching
from fairseq_casrnn.recurrence.triton import layer_loop as triton_layer_loop
from fairseq_casrnn.recurrence.triton import plan as triton_plan
from fairseq_casrnn.recurrence.triton import support as triton_support

from .test_cpp import layer_of

ROOT = Path(__file__).resolve().parents[2]
INTERPRETING = triton_support.interpreting()
MISSING = triton_support.missing() is not None
DEVICE = "cpu" if INTERPRETING else "cuda"
runs = pytest.mark.skipif(
    MISSING or not (INTERPRETING or torch.cuda.is_available()),
    reason="neither a GPU nor Triton's interpreter",
)
HALF = pytest.mark.parametrize("dtype", HALVES, ids=["bf16", "f16"])


def run(engine, cell, tensors, last=None, device=DEVICE):
    """Return outputs and all gradients, on the CPU, for copies of ``tensors``."""
    leaves = [None if t is None else t.detach().to(device).requires_grad_() for t in tensors]
    x, w_ih, bias, w_hh, h0, c0, side, *params = leaves
    last = None if last is None else last.to(device)
    gx = InputProduct(x, w_ih, bias)
    reads = side_input(cell, side) | {"params": tuple(params)}
    result = recurrence.run(engine, cell, gx, w_hh, h0, c0, last=last, **reads)
    result = [t for t in result if t is not None]
    grads = gradients(weighted(result), [t for t in leaves if t is not None])
    return [t.cpu() for t in result], [t.cpu() for t in grads]


# Expressions for pytest's -k that select tests to run in the interpreter: those of all engines that
# launch few kernels, and those of this engine alone. `make test` runs PART, which launches each
# kernel at least once.
ENGINES = "agrees_with_reference or apart or (backward_twice and (stacked or cas))"
LAYER = "test_sentence_state and (1-1 or 2-0 or kept or recomputing or autocast or negated)"
DECODER = "test_decoder_loop and (True-2 or (compiled_steps and 5) or checkpointing or changing_an)"
MATRIX = f"test_triton or (triton and ({ENGINES} or ({LAYER}) or ({DECODER})))"
SLOW = "more_tiles or wait_for or half_precision or trains_as or saturated or without_input_feeding"
PART = (
    f"(test_triton and (not ({SLOW}) or (cas_lstm and not ([f16 or chip or programs_wait))))"
    " or (triton and (test_engines and agrees_with_reference and lengths and not (0.0 or 0.25)"
    " or compiled_steps and 5 and cas_lstm or test_decoder_loop and True-2 and (gru or trainable)"
    " or test_sentence_state and equals_the_reference and (1-1 or 2-0))) or checks_of_kernels"
)


@pytest.mark.parametrize(
    ("chosen", "least"),
    [
        pytest.param(PART, 60, id="part"),
        pytest.param(f"({MATRIX}) and not ({PART})", 150, id="rest", marks=pytest.mark.full),
    ],
)
def test_in_the_interpreter(chosen, least):
    """It needs its own process, because the interpreter is chosen when Triton is imported."""
    if INTERPRETING or MISSING or torch.cuda.is_available():
        pytest.skip("for where Triton is installed and there is no GPU")
    names = ["engines", "triton", "triton_cross_entropy", "triton_sentence_state"]
    names += ["triton_decoder", "triton_beam"]
    files = [f"tests/recurrence/test_{name}.py" for name in names]
    files += ["tests/layers/test_sentence_state.py", "tests/models/test_decoder_loop.py"]
    files.append("tests/test_gpu_benchmark.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        [*command, "-m", "", "-k", chosen],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > least


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@needs_triton
@every_case
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, DOUBLE), (torch.float32, SINGLE)], ids=["f64", "f32"]
)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 5, 33), (20, 64, 256)], ids=str)
def test_agrees_on_a_gpu(case, dtype, tolerance, sizes):
    cell, tensors = layer_of(case, *sizes, dtype)
    last = torch.arange(sizes[1]) % sizes[0]
    (ours, d_ours), (theirs, d_theirs) = (
        run(engine, cell, tensors, last, device)
        for engine, device in (("triton", "cuda"), ("reference", "cpu"))
    )
    assert_close(ours, theirs, tolerance)
    # Gradients are sums over steps and sequences.
    assert_close(d_ours, d_theirs, {"rtol": tolerance["rtol"], "atol": 100 * tolerance["atol"]})


@runs
@every_family
@HALF
def test_half_precision_keeps_states_and_sums_in_single(case, dtype):
    """The layer agrees with a float32 layer that has the same weights and inputs."""
    cell, tensors = layer_of(case, 4, 3, 5, torch.float32)
    tensors = [None if t is None else t.detach().to(dtype) for t in tensors]
    last = torch.tensor([1, 3, 0])
    ours, grads = run("triton", cell, tensors, last)
    wide = [None if t is None else t.float() for t in tensors]
    theirs, expected = run("reference", cell, wide, last, "cpu")
    dtypes = [dtype, torch.float32, dtype, dtype] if cell.has_cell else [dtype, dtype]
    assert [t.dtype for t in ours] == dtypes
    assert all(g.dtype == dtype for g in grads)
    assert_close([t.float() for t in ours], theirs, HALVES[dtype])
    for ours, theirs in zip(grads, expected, strict=True):
        assert (ours.float() - theirs).norm() <= HALVES[dtype]["rtol"] * theirs.norm()


@runs
@pytest.mark.parametrize(
    ("name", "dtype", "end", "tolerance"),
    [
        # 4 + 1/1024 is 4 in both dtypes; a GRU's state is returned as h, in the layer's dtype
        ("stacked_lstm", torch.float16, 4 + 16 / 1024, 1e-4),
        ("stacked_lstm", torch.bfloat16, 4 + 16 / 1024, 1e-4),
        ("stacked_gru", torch.bfloat16, 4 * (1 - 1 / 1024) ** 16, 0.01),
    ],
)
def test_small_changes_of_the_state_add_up(name, dtype, end, tolerance):
    """c grows by 1/1024 at each of 16 steps; a GRU's h shrinks by that share."""
    cell = next(case for case in FAMILIES if case.name == name).layer().cells[0]
    small = torch.tensor(1 / 1024)
    gates = [30.0, 30.0, small.atanh(), 30.0] if cell.has_cell else [-30.0, (1 - small).logit(), 0]
    gx = torch.tensor(gates).repeat(16, 1, 1).to(DEVICE)
    state = gx.new_full((1, 1), 4.0).to(dtype)
    params = [torch.zeros_like(state[0])] * len(cell.params)
    weight, c = torch.zeros_like(state).repeat(cell.hh_blocks, 1), state if cell.has_cell else None
    hs, cs, *_ = recurrence.run("triton", cell, gx, weight, state, c, params=params)
    final = (hs if cs is None else cs)[-1]
    assert_close([final.float().cpu()], [torch.full((1, 1), end)], {"rtol": 0, "atol": tolerance})


def assert_agrees(cell, tensors, tolerance, last=None):
    """Compare outputs and gradients with the reference."""
    for ours, theirs in zip(
        *(run(e, cell, tensors, last) for e in ("triton", "reference")), strict=True
    ):
        assert_close(ours, theirs, tolerance)


@pytest.fixture
def step_by_step(monkeypatch):
    monkeypatch.setenv("CASRNN_TRITON_SEQUENCES", "0")


@runs
@every_case
def test_one_kernel_per_step(case, step_by_step):
    cell, tensors = layer_of(case, 4, 3, 5, torch.float64)
    assert_agrees(cell, tensors, DOUBLE, torch.tensor([1, 3, 0]).to(DEVICE))


@runs
@pytest.mark.parametrize("name", ["dg_lstm", "second_order_lstm"])
def test_more_tiles_than_one_in_a_step(name, step_by_step):
    """There are more rows and units than one program computes."""
    rows, units = triton_layer_loop.TILE
    case = next(case for case in FAMILIES if case.name == name)
    cell, tensors = layer_of(case, 2, rows + 3, units + 5, torch.float32)
    assert_agrees(cell, tensors, {"rtol": 1e-3, "atol": 1e-4})


every_spread_cell = pytest.mark.parametrize(
    "name", ["cas_lstm", "dg_lstm", "stacked_gru", "second_order_lstm"]
)


def spread_layer(name):
    """Return a layer that needs several tiles of rows and of units."""
    case = next(case for case in FAMILIES if case.name == name)
    cell, tensors = layer_of(case, 3, 18, 36, torch.float32)
    grid = triton_plan.plan(cell, tensors[3], 18).grid
    assert grid[0] == 2
    assert grid[1] > 1
    return cell, tensors


@runs
def test_a_batch_of_one_with_other_strides():
    """Such a tensor is contiguous, whatever the stride of its batch dimension."""
    cell = LSTM(1, 5).cells[0]
    gx = rand(1, 4, 20, dtype=torch.float32).transpose(0, 1)
    weight, state = rand(20, 5, dtype=torch.float32), torch.zeros(1, 5)
    grads = []
    for engine, device in (("triton", DEVICE), ("reference", "cpu")):
        # No .to() here, which might change the strides.
        leaf = weight.to(device).requires_grad_()
        inputs = [t.to(device) for t in (state, state)]
        hs, *_ = recurrence.run(engine, cell, (gx + 0).to(device), leaf, *inputs)
        grads.append(gradients(hs.sum(), [leaf])[0].cpu())
    assert_close(grads[:1], grads[1:], {"rtol": 1e-4, "atol": 1e-5})


@pytest.fixture(params=["kept on the chip", "streamed"])
def keep_or_stream_weights(request, monkeypatch):
    """The two ways to multiply with U. If it is streamed, a program has several tiles of rows."""
    plan = triton_layer_loop.plan

    def planned(*args, **kwargs):
        grid, tiles = plan(*args, **kwargs)
        assert tiles.RESIDENT
        if request.param == "streamed":
            return triton_plan.Plan((1, grid[1]), tiles._replace(RESIDENT=False))
        return triton_plan.Plan(grid, tiles)

    monkeypatch.setattr(triton_layer_loop, "plan", planned)


@runs
@every_spread_cell
def test_more_tiles_than_one_in_a_sequence(name, keep_or_stream_weights, monkeypatch):
    """The products are also summed over two parts or more."""
    monkeypatch.setattr(triton_plan, "DEPTHS", (32,))
    cell, tensors = spread_layer(name)
    assert_agrees(cell, tensors, {"rtol": 1e-3, "atol": 1e-4})


def launch_in_processes(kernel, plan, /, backwards=False, **arguments):
    """Replaces ``launch``: run the programs with :func:`interpret_together`."""
    arguments |= {"tiles": plan.tiles, "count": barriers.counters(plan, arguments["gates"])}
    arguments |= {"begin": 0, "end": arguments["steps"], "BARRIER": True}
    interpret_together(kernel, plan.grid, arguments, seconds=120)


def interpret_together(kernel, grid, arguments, seconds):
    """Interpret each program of a launch in a process of its own.

    A program that waits forever is killed after ``seconds``.
    """
    from triton.runtime.interpreter import GridExecutor, interpreter_builder

    for value in triton_launching.flattened(arguments.values()):
        if isinstance(value, torch.Tensor):
            value.share_memory_()
    children = []
    set_dim, set_idx = interpreter_builder.set_grid_dim, interpreter_builder.set_grid_idx
    for x, y in itertools.product(*map(range, grid)):
        child = os.fork()
        if child:
            children.append(child)
            continue
        try:
            signal.alarm(seconds)
            interpreter_builder.set_grid_dim = lambda *_: set_dim(*grid, 1)
            interpreter_builder.set_grid_idx = lambda *_, x=x, y=y: set_idx(x, y, 0)
            GridExecutor._restore_args_dev = lambda *_: None  # tensors are shared
            kernel[1, 1](**arguments)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    # Run one after the other, the programs would wait for each other forever.
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)


@pytest.mark.skipif(not INTERPRETING, reason="for Triton's interpreter")
@every_spread_cell
def test_programs_of_a_sequence_wait_for_each_other(name, keep_or_stream_weights, monkeypatch):
    """As on a GPU, all programs run at once, from the first step to the last."""
    cell, tensors = spread_layer(name)
    monkeypatch.setattr(triton_layer_loop, "launch", launch_in_processes)
    assert_agrees(cell, tensors, {"rtol": 1e-3, "atol": 1e-4})


@needs_triton
def test_counters_are_zero_for_every_launch():
    """Used counters are zeroed before another launch gets them."""
    counters = barriers.Counters(torch.device("cpu"))
    taken = [counters.take(100) for _ in range(counters.COUNT // 100)]
    assert all((t == 0).all() for t in taken)
    assert len({t.data_ptr() for t in taken}) == len(taken)
    for t in taken:
        t += 7
    again = counters.take(100)
    assert again.data_ptr() == taken[0].data_ptr()
    # Addresses are equally aligned; otherwise Triton would compile two kernels.
    assert all(counters.take(n).data_ptr() % 16 == again.data_ptr() % 16 for n in (1, 3, 9))
    assert (again == 0).all()


def plan_of(blocks, size, batch, dtype=torch.float32, backwards=False):
    cell = SimpleNamespace(hh_blocks=blocks)
    weight = torch.empty(blocks * size, size, dtype=dtype, device="meta")
    return triton_plan.plan(cell, weight, batch, backwards)


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    monkeypatch.setattr(triton_plan, "interpreting", lambda: False)
    monkeypatch.setattr(triton_plan, "supports_grid_barrier", lambda _: True)
    monkeypatch.setattr(triton_plan, "chip", lambda _: triton_plan.H200)


@needs_triton
@pytest.mark.parametrize("backwards", [False, True])
def test_what_fits_on_an_h200(backwards, h200):
    """For usual sizes all programs run at once, with U in shared memory."""
    for dtype, blocks, size in itertools.product(
        (torch.float32, torch.bfloat16), (3, 4, 5), (1, 12, 256, 300, 650, 1024, 2000)
    ):
        grid, tiles = plan_of(blocks, size, 64, dtype, backwards)
        assert grid[0] * grid[1] <= 132
        assert (grid[1] - 1) * tiles.UNITS < size <= grid[1] * tiles.UNITS
        if size <= 1024:  # no program computes a second tile of rows
            assert (grid[0] - 1) * tiles.ROWS < 64 <= grid[0] * tiles.ROWS
        assert tiles.RESIDENT or size > 512
        if tiles.RESIDENT:
            assert blocks * tiles.UNITS * size * dtype.itemsize < 227 * 1024
    assert plan_of(5, 1024, 64, torch.bfloat16).tiles.RESIDENT
    assert plan_of(4, 256, 64, torch.float64) is None
    # Registers limit the number of results that a program computes at once.
    assert plan_of(32, 256, 64).tiles.GROUP == 8


@needs_triton
def test_tiles_do_not_depend_on_the_batch(h200):
    """Only their height does, which has two values, so that few kernels are compiled."""
    for dtype, blocks, size, backwards in itertools.product(
        (torch.float32, torch.bfloat16), (3, 5, 8), (256, 650, 1024), (False, True)
    ):
        plans = [plan_of(blocks, size, n, dtype, backwards) for n in range(8, 4000, 8)]
        heights = {plan.tiles.ROWS for plan in plans}
        assert heights <= set(triton_plan.HEIGHTS)
        assert len({plan.tiles._replace(ROWS=0) for plan in plans}) <= len(heights)
        assert all(plan.grid[0] * plan.grid[1] <= 132 for plan in plans)
        assert all(plan.grid[0] > 1 for plan in plans[-9:])


@needs_triton
def test_precision_of_products(h200, monkeypatch):
    assert plan_of(4, 256, 64).tiles.PRECISION == "tf32"
    assert plan_of(4, 1024, 64, torch.bfloat16).tiles.PRECISION == "ieee"
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    assert plan_of(4, 256, 64).tiles.PRECISION == "tf32x3"
    assert plan_of(4, 512, 64).tiles.RESIDENT is False  # each number is stored in two parts

    def mixed():
        raise RuntimeError("a mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    for new, old in (("tf32", "tf32"), ("ieee", "tf32x3")):
        switch = SimpleNamespace(fp32_precision=new)
        monkeypatch.setattr(torch.backends.cuda, "matmul", switch)
        assert old == plan_of(4, 256, 64).tiles.PRECISION
    monkeypatch.setenv("CASRNN_TRITON_SEQUENCES", "0")
    assert plan_of(4, 256, 64) is None


@needs_triton
def test_gpus_whose_programs_cannot_wait_for_each_other(monkeypatch):
    """These are Turing GPUs, which lack TF32, too, and AMD GPUs, whose device is also "cuda"."""
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(torch.version, "hip", None)
    for capability in ((7, 5), (8, 0), (9, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        triton_plan.supports_grid_barrier.cache_clear()
        assert triton_plan.supports_grid_barrier(gpu) == (capability[0] >= 8)
    monkeypatch.setattr(torch.version, "hip", "6.2")
    triton_plan.supports_grid_barrier.cache_clear()
    assert not triton_plan.supports_grid_barrier(gpu)
    triton_plan.supports_grid_barrier.cache_clear()
    assert triton_plan.supports_grid_barrier(torch.device("cpu"))
    monkeypatch.setattr(triton_plan, "chip", lambda _: triton_plan.H200)
    for found in (True, False):
        monkeypatch.setattr(triton_plan, "supports_grid_barrier", lambda _, found=found: found)
        assert (plan_of(4, 256, 64) is not None) == found


@pytest.mark.skipif(not INTERPRETING, reason="for Triton's interpreter")
def test_operands_are_rounded_to_tf32():
    """They are rounded to 10 bits of mantissa, ties away from 0; the hardware would truncate."""
    from .kernels import operands

    step = 2.0**-10
    x = torch.tensor([1 + step / 4, 1 + step / 2, 1 + 0.75 * step, -1 - 0.75 * step, 0.0, 3e38])
    x = torch.cat([x, torch.tensor([math.inf, -math.inf, math.nan]), rand(7, dtype=torch.float32)])
    x = torch.cat([x[:15], torch.tensor([0x7FFFFFFF]).int().view(torch.float32)])  # CUDA's NaN
    y, same = torch.empty(16), torch.empty(16)
    operands[1,](x, y, "tf32")
    operands[1,](x, same, "tf32x3")
    assert y[:5].tolist() == [1, 1 + step, 1 + step, -1 - step, 0]
    assert y[[6, 7, 8, 15]].isnan().all()
    assert (y.view(torch.int32)[:8] % 2**13 == 0).all()
    assert ((y - x).abs()[9:15] <= x.abs()[9:15] * step / 2).all()
    torch.testing.assert_close(same, x, rtol=0, atol=0, equal_nan=True)


@runs
def test_accuracy_of_activations():
    """They are observed as c = i ⊙ g with the other factor 1."""
    near = torch.logspace(-20, 0, 50)
    a = torch.cat([torch.linspace(-30, 30, 601), near, -near]).view(1, 1, -1).to(DEVICE)
    exact = torch.tanh(a.double()).flatten(), torch.sigmoid(a.double()).flatten()
    big, none, zero = torch.full_like(a, 40.0), torch.full_like(a, -40.0), torch.zeros_like(a[0])
    cell, weight = LSTM(1, 1).cells[0], a.new_zeros(4 * a.numel(), a.numel())
    for gates, true in zip(((big, none, a, big), (a, none, big, big)), exact, strict=True):
        _, cs, *_ = recurrence.run("triton", cell, torch.cat(gates, -1), weight, zero, zero)
        error = (cs.flatten().double() - true).abs() / true.abs().clamp(min=1e-30)
        # On a GPU exp(x) is exp2(x log2 e), with a rounded argument: 43 for x = 30.
        assert error.max() < (1e-6 if INTERPRETING else 3e-6)


@runs
@every_family
def test_saturated_gates_and_nan(case):
    """No gate overflows, and NaN stays in its sequence."""
    cell, tensors = layer_of(case, 3, 4, 5, torch.float32)
    tensors = [None if t is None else t.detach() for t in tensors]
    tensors[1] *= 1000
    clean, grads = run("triton", cell, tensors)
    assert all(t.isfinite().all() for t in (*clean, *grads))
    tensors[0][1, 1] = float("nan")
    (hs, *_), _ = run("triton", cell, tensors)
    assert hs[1:, 1].isnan().all()
    others = [0, 2, 3]
    assert_close([hs[:, others], hs[:1]], [clean[0][:, others], clean[0][:1]])
