"""Kernels of the engine triton, compiled for a GPU on a machine without one."""

import functools
import importlib
import itertools
import re
import subprocess
from pathlib import Path

import pytest
import torch
from helpers import FAMILIES, every_compiled_case, side_input

from fairseq_casrnn import recurrence
from fairseq_casrnn.layers import SentenceStateLSTM
from fairseq_casrnn.recurrence.cross_entropy import cross_entropy
from fairseq_casrnn.recurrence.inputs import LossSpec
from fairseq_casrnn.recurrence.triton import host as triton_host
from fairseq_casrnn.recurrence.triton import plan as triton_plan
from fairseq_casrnn.recurrence.triton import support as triton_support

from .test_cpp import layer_of
from .test_triton import INTERPRETING, run

KERNELS = "fairseq_casrnn.recurrence.triton.kernels"

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def compiled_only(monkeypatch):
    """Compile kernels without launching them; yields the list of compiled kernels."""
    triton = pytest.importorskip("triton")
    if INTERPRETING:
        pytest.skip("for Triton's compiler")
    monkeypatch.syspath_prepend(BENCHMARKS)
    from compiling import NoGPU

    monkeypatch.setattr(triton_support, "interpreting", lambda: True)
    triton.runtime.driver.set_active(NoGPU())
    compiled, original = [], triton.JITFunction.run

    def compile_only(self, *args, warmup, **kwargs):
        kernel = original(self, *args, warmup=True, **kwargs)
        compiled.append(kernel)

    monkeypatch.setattr(triton.JITFunction, "run", compile_only)
    yield compiled
    triton.runtime.driver.set_active(None)  # Triton looks for it again when needed


@pytest.mark.sampled(every=5)
@every_compiled_case
@pytest.mark.parametrize("kind", ["step", "sequence"])
def test_kernels_compile_for_a_gpu(case, kind, compiled_only, monkeypatch):
    monkeypatch.setenv("CASRNN_TRITON_SEQUENCES", str(int(kind == "sequence")))
    for dtype in (torch.float32, torch.bfloat16):
        cell, tensors = layer_of(case, 2, 3, 5, dtype)
        del compiled_only[:]
        run("triton", cell, tensors, device="cpu")
        cell, tensors = layer_of(case, 3, 2, 5, dtype)
        run("triton", cell, tensors, device="cpu")
        names = [
            f"{direction}_{kind}"
            for steps in (2, 3)
            for direction in ("forward", "backward")
            for _ in range(1 if kind == "sequence" else steps)
        ]
        assert [k.name for k in compiled_only] == names
        assert all(".target sm_90" in k.asm["ptx"] for k in compiled_only)
        # Other steps, lengths and batches compile no further kernels.
        assert len({k.asm["ptx"] for k in compiled_only}) == 2
        # Programs that wait for each other need a cooperative launch.
        assert all(
            k.metadata.launch_cooperative_grid == (kind == "sequence") for k in compiled_only
        )


def test_one_kernel_for_forward_and_one_for_backward(compiled_only):
    """Lengths, missing gradients and unaligned tensors need no further kernels."""
    case = next(case for case in FAMILIES if case.name == "cas_lstm")
    cell, tensors = layer_of(case, 2, 3, 5, torch.float32)
    for last, wanted, shift in (
        (None, [0], 0),
        (None, [1, 3], 0),
        (torch.tensor([1, 0, 1]), [2], 0),
        (torch.tensor([0, 0, 1]), [0, 1, 2, 3], 1),
    ):
        leaves = []
        for t in tensors:
            flat = torch.cat([t.new_zeros(shift), t.detach().flatten()])
            leaves.append(flat[shift:].view_as(t).requires_grad_())
        x, w_ih, bias, w_hh, h0, c0, lower_c = leaves
        gx = recurrence.InputProduct(x, w_ih, bias)
        results = recurrence.run("triton", cell, gx, w_hh, h0, c0, lower_c=lower_c, last=last)
        torch.autograd.grad(sum(results[k].sum() for k in wanted), [w_hh])
    assert [k.name for k in compiled_only] == ["forward_sequence", "backward_sequence"] * 4
    assert len({id(k) for k in compiled_only}) == 2


def compiled_layer(compiled_only, name, size, dtype=torch.bfloat16):
    """Yield each compiled kernel, with its text before the loop over time and that of the loop."""
    case = next(case for case in FAMILIES if case.name == name)
    cell, tensors = layer_of(case, 2, 3, size, dtype)
    run("triton", cell, tensors, device="cpu")
    for kernel in compiled_only:
        before, rows, time = re.split(r"scf\.for", kernel.asm["ttgir"], maxsplit=2)
        yield kernel, before + rows, time


def test_weights_stay_on_the_chip(compiled_only):
    """U's tiles are put into shared memory before the loops, which only read them."""
    for kernel, before, time in compiled_layer(compiled_only, "stacked_lstm", 48):
        blocks = 4 if kernel.name == "forward_sequence" else 1
        assert before.count("ttg.local_alloc") == blocks
        assert "ttg.local_alloc" not in time
        assert time.count("ttg.local_load") == blocks
        assert kernel.metadata.shared >= 4 * 48 * 16 * 2


def test_rows_are_loaded_before_they_are_multiplied(compiled_only):
    """Several tiles are being loaded, 16 bits per value, while one is multiplied."""
    for kernel, _, time in compiled_layer(compiled_only, "stacked_lstm", 300):
        parts, products = (3, 4) if kernel.name == "forward_sequence" else (5, 1)
        events = "".join(e[0] for e in re.findall(r"cacheModifier = cg|tt\.dot ", time))
        assert (events.count("c"), events.count("t")) == (parts, parts * products)
        assert events.startswith("ccct" if parts == 3 else "cccctctt")


@pytest.mark.full
def test_operands_avoid_bank_conflicts(compiled_only):
    """A warp reads one part; were parts the second dimension, eight rows would share a bank."""
    for name, dtype in itertools.product(
        ("stacked_lstm", "cas_lstm"), (torch.bfloat16, torch.float32)
    ):
        del compiled_only[:]
        for kernel, *_ in compiled_layer(compiled_only, name, 256, dtype):
            orders = re.findall(
                r"swizzled_shared<.*order = \[(\d), (\d), (\d)\]", kernel.asm["ttgir"]
            )
            assert orders
            assert all(last == "0" for *_, last in orders)
            assert "tt.reduce" not in kernel.asm["ttgir"]


@pytest.mark.full
def test_weights_that_do_not_fit_are_streamed(compiled_only, monkeypatch):
    """They are copied asynchronously, in a loop whose body does not grow with the layer."""
    lines = set()
    for size in (700, 900):
        del compiled_only[:]
        monkeypatch.setattr(triton_plan, "chip", lambda _: (132, 128 * 1024))
        layers = compiled_layer(compiled_only, "stacked_lstm", size, torch.float32)
        for kernel, _, time in layers:
            assert time.count("scf.for") == 1
            assert time.count("ttg.async_copy_global_to_local") >= 2
            lines.add((kernel.name, time.count("tt.dot")))
    assert len(lines) == 2


def test_work_that_overlaps_the_barrier(compiled_only):
    """Before waiting, the next inputs are loaded and outputs that no program reads are stored."""
    for kernel, _, time in compiled_layer(compiled_only, "cas_lstm", 48):
        before, during, after = re.split(r"tt\.atomic_rmw add, \w+", time)
        forward = kernel.name == "forward_sequence"
        assert before.count("tt.store") == (1 if forward else 5)
        assert before.count("tt.load") == 1  # h, or the gradients, for the product
        assert during.count("tt.store") == (8 if forward else 1)
        assert during.count("tt.load") >= 6
        assert "tt.load" not in after.partition("scf.yield")[0]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("name", "size", "batch", "dtype", "precision"),
    [
        ("cas_lstm", 1024, 64, torch.bfloat16, "highest"),  # 2 x 64 programs of 32 rows
        ("stacked_gru", 768, 96, torch.float32, "high"),
        ("stacked_lstm", 300, 33, torch.float32, "highest"),  # numbers in two parts
        ("second_order_lstm", 1024, 64, torch.float32, "highest"),  # U does not fit
    ],
)
def test_kernels_fit_as_planned(name, size, batch, dtype, precision, compiled_only, monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    cell = next(case for case in FAMILIES if case.name == name).layer().cells[0]
    weight = torch.zeros(cell.hh_blocks * size, size, dtype=dtype)
    state = weight.new_zeros(batch, size)
    gx = weight.new_zeros(2, batch, cell.ih_blocks * size)
    params = [torch.zeros_like(state[0])] * len(cell.params)
    c0 = state if cell.has_cell else None
    reads = side_input(cell, weight.new_zeros(2, batch, cell.num_cells or size))
    with torch.no_grad():
        recurrence.run("triton", cell, gx, weight, state, c0, **reads, params=params)
    (kernel,) = compiled_only
    assert kernel.name == "forward_sequence"
    assert kernel.metadata.shared <= 227 * 1024


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_cross_entropy(dtype, compiled_only):
    """There are two launches, with wide loads and no spills; other batches compile nothing."""
    weight, bias = torch.zeros(40008, 8, dtype=dtype), torch.zeros(40008, dtype=dtype)
    for rows in (1, 16, 35):
        x = torch.zeros(rows, 8, dtype=dtype, requires_grad=True)
        spec = LossSpec(torch.zeros(rows + 1, dtype=torch.int64)[1:], 0.1, 1)
        cross_entropy(x, weight, bias, spec, engine="triton")[0].backward()
    assert [k.name for k in compiled_only] == ["forward_rows", "backward_rows"] * 3
    assert len({k.asm["ptx"] for k in compiled_only}) == 2
    for kernel in compiled_only[:2]:
        assert ".target sm_90" in kernel.asm["ptx"]
        assert re.search(r"ld\.global\S*\.v4\.b32", kernel.asm["ptx"])
        assert not re.search(r"\b(STL|LDL)\b", kernel.asm["sass"])  # no spills


@pytest.mark.full
def test_compiling_is_announced_once(compiled_only, messages, monkeypatch, tmp_path):
    """It is not announced if the kernels are read from the disk."""
    knobs = importlib.import_module("triton").knobs
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    others = []
    listener = functools.partial(triton_host.compiled, lambda **given: others.append(given))
    monkeypatch.setattr(knobs.compilation, "listener", listener)
    cell, tensors = layer_of(FAMILIES[0], 2, 3, 5, torch.float32)
    counts = []
    for _ in range(2):
        triton_host.announce.cache_clear()
        kernels = triton_host.kernels("sequences")
        for function in (kernels.forward_sequence, kernels.backward_sequence):
            function.device_caches.clear()
        run("triton", cell, tensors, device="cpu")
        counts.append(sum("compiles kernels" in m and str(tmp_path) in m for m in messages()))
    assert counts == [1, 1]
    assert [given["cache_hit"] for given in others] == [False, False, True, True]


@pytest.mark.parametrize(
    "why", ["too many blocks in cooperative launch", "operation not supported"]
)
def test_one_launch_per_step_if_a_cooperative_launch_is_refused(
    compiled_only, messages, monkeypatch, why
):
    """This happens while another process uses a part of the GPU."""
    only_compile = importlib.import_module("triton").JITFunction.run

    def run_or_refuse(self, *args, **kwargs):
        if kwargs.get("launch_cooperative_grid"):
            raise RuntimeError(f"Triton Error [CUDA]: {why}")
        return only_compile(self, *args, **kwargs)

    monkeypatch.setattr(importlib.import_module("triton").JITFunction, "run", run_or_refuse)
    cell, tensors = layer_of(FAMILIES[0], 2, 3, 5, torch.float32)
    run("triton", cell, tensors, device="cpu")
    assert [k.name for k in compiled_only] == ["forward_step"] * 2 + ["backward_step"] * 2
    assert sum("launches a kernel a step: Triton Error" in m for m in messages()) == 1


def spilled_bytes(kernel, folder):
    """Return the size of a thread's stack, which holds values that do not fit in registers."""
    tool = Path(importlib.import_module("triton").__file__).parent
    tool = tool / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("this Triton has no cuobjdump")
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(kernel.asm["cubin"])
    usage = subprocess.run(
        [tool, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True
    )
    return int(re.search(r"STACK:(\d+)", usage.stdout)[1])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((33, 1, 1), torch.float32),
        ((300, 1, 1), torch.float32),
        ((300, 1, 1), torch.bfloat16),
        ((300, 1, 1), torch.float16),
        ((650, 2, 3), torch.bfloat16),
        ((5, 3, 0), torch.float64),
    ],
    ids=str,
)
def test_kernels_of_the_sentence_state_lstm(sizes, dtype, compiled_only, tmp_path):
    """One kernel runs per step, other batches compile nothing, and all values fit in registers."""
    size, window, nodes = sizes
    layer = SentenceStateLSTM(3, size, 2, window, nodes, engine="triton").to(dtype)
    for words, lengths in ((4, [4, 4, 4]), (3, [1, 3]), (1, [1])):
        x = torch.zeros(words, len(lengths), 3, dtype=dtype)
        sum(t.sum() for t in layer(x, torch.tensor(lengths))).backward()
    names = ["first_states", *["forward_step"] * 2, *["backward_step"] * 2, "first_states_backward"]
    assert [k.name for k in compiled_only] == 3 * names
    assert all(".target sm_90" in k.asm["ptx"] for k in compiled_only)
    kernels = {k.name: k for k in compiled_only}
    assert len({k.asm["ptx"] for k in compiled_only}) == len(kernels) == 4
    if dtype != torch.float64:
        assert [spilled_bytes(k, tmp_path) for k in kernels.values()] == [0, 0, 0, 0]


def test_cache_keys_do_not_depend_on_which_kernel_is_compiled_first(monkeypatch):
    triton = pytest.importorskip("triton")
    if INTERPRETING:
        pytest.skip("Triton is interpreting")
    kinds = "sequences", "decoder", "single_steps"
    parts = "attention", "decoder_layers", "decoder_products", "products", "tiles"
    modules = [importlib.import_module(f"{KERNELS}.{name}") for name in (*kinds, *parts)]
    values = [value for module in modules for value in vars(module).values()]
    functions = [value for value in values if isinstance(value, triton.JITFunction)]
    keys = []
    for order in (kinds, kinds[::-1]):
        for function in functions:
            monkeypatch.setattr(function, "hash", None)
            monkeypatch.setattr(function, "used_global_vals", {})
        triton_host.kernels.cache_clear()
        triton_host.hash_callees_first.cache_clear()
        for kind in order:
            launched = [f for name, f in vars(triton_host.kernels(kind)).items() if "ward" in name]
            for function in launched if order is kinds else launched[::-1]:
                _ = function.cache_key
        keys.append([function.cache_key for function in functions])
    assert keys[0] == keys[1]
