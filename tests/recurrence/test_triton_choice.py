"""When the engine triton runs, and what it says when it does not."""

import contextlib
import importlib
import importlib.metadata
import importlib.util

import pytest
import torch
from helpers import needs_triton, rand
from torch._subclasses import FakeTensorMode

from fairseq_casrnn import recurrence
from fairseq_casrnn.cells import FAMILIES
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import CASLSTM, LSTM
from fairseq_casrnn.recurrence.triton import failures as triton_failures
from fairseq_casrnn.recurrence.triton import host as triton_host
from fairseq_casrnn.recurrence.triton import layer as triton_layer
from fairseq_casrnn.recurrence.triton import layer_loop as triton_layer_loop
from fairseq_casrnn.recurrence.triton import plan as triton_plan
from fairseq_casrnn.recurrence.triton import support as triton_support


@pytest.fixture(autouse=True)
def _nothing_was_tried(monkeypatch):
    monkeypatch.setattr(triton_failures, "failure", None)
    monkeypatch.setattr(triton_failures, "trials", {})
    for module in (triton_failures, triton_support):
        monkeypatch.setattr(module, "interpreting", lambda: False)
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)


class Plus(type(LSTM(1, 1).cells[0])):
    """Not the LSTM's kernel's business."""


def test_on_the_cpu_the_default_runs(messages, monkeypatch):
    monkeypatch.setattr(recurrence.ENGINES["triton"], "missing", None)
    x = rand(4, 2, 3, dtype=torch.float32)
    layer = CASLSTM(3, 5, engine="triton")
    for _ in range(2):
        output, _ = layer(x)
    layer.engine = recurrence.default()
    assert torch.equal(output, layer(x)[0])
    assert "triton" not in recurrence.installed()
    reason = "its kernels run on NVIDIA GPUs"
    said = f"engine 'triton' is not available, '{recurrence.default()}' runs instead: {reason}"
    assert messages().count(said) == 1


def test_reasons_to_leave_it_to_another(monkeypatch):
    monkeypatch.setattr(triton_support, "interpreting", lambda: True)
    cell, t = LSTM(1, 1).cells[0], torch.zeros(2)
    assert triton_support.why_not(cell, (t, None, t)) is None
    assert triton_support.why_not(cell, (t.half(),), (t, None)) is None  # c from the layer below
    for tensors, states, reason in (
        ((t.half(), t), (), "of several dtypes"),
        ((t,), (t.half(),), "of several dtypes"),
        ((t.long(),), (), "does not run in torch.int64"),
        ((t,), (t.to("meta"),), "on several devices"),
        ((t.to("meta"),), (), "these are on meta"),
    ):
        assert reason in triton_support.why_not(cell, tensors, states)
    assert triton_support.why_not(Plus(), (t,)) == "it has no kernel for Plus"


def test_every_cell_has_kernels():
    names = {kernel for row in FAMILIES.values() for kernel in row.kernels}
    kernels = pytest.importorskip("fairseq_casrnn.recurrence.triton.kernels.single_steps")
    assert set(kernels.FORWARD) == set(kernels.BACKWARD) == names


@pytest.fixture
def gpu(monkeypatch):
    """As if there were one, of a kind that will do."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(recurrence.ENGINES["triton"], "missing", None)
    monkeypatch.setattr(triton_failures, "trial", lambda index: None)


def test_default_by_device(gpu, monkeypatch, messages):
    assert recurrence.choose(None, "cuda").name == recurrence.default("cuda") == "triton"
    assert recurrence.choose("triton", "cuda").name == "triton"
    assert messages() == ["recurrence engine: triton"]
    assert recurrence.choose(None, "cpu").name == recurrence.default() != "triton"
    monkeypatch.setenv("CASRNN_ENGINE", "reference")
    assert recurrence.choose(None, "cuda").name == "reference"


@pytest.mark.parametrize(
    ("capability", "hip", "reason"),
    [
        ((7, 5), None, "this GPU's compute capability is 7.5, and its kernels need 8.0"),
        ((9, 4), "6.2", "its kernels are for NVIDIA's GPUs"),
        ((8, 0), None, None),
    ],
)
def test_cards(gpu, monkeypatch, messages, capability, hip, reason):
    triton_plan.supports_grid_barrier.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    names = [recurrence.choose(name, "cuda").name for name in (None, "auto", "triton")]
    assert names == 3 * ["eager" if reason else "triton"]
    said = f"engine 'triton' is not available, 'eager' runs instead: {reason}"
    assert messages() == [said if reason else "recurrence engine: triton"]


def no_compiler(monkeypatch, tmp_path):
    from triton.runtime import build

    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    build._build("stub", "stub.c", str(tmp_path), [], [], [], [])


def no_such_compiler(monkeypatch, tmp_path):
    from triton.runtime import build

    monkeypatch.setenv("CC", "/no/such/cc")
    build._build("stub", "stub.c", str(tmp_path), [], [], [], [])


def no_headers(monkeypatch, tmp_path):
    from triton.runtime import build

    monkeypatch.setenv("CC", "false")  # a program that fails
    build._build("stub", "stub.c", str(tmp_path), [], [], [], [])


def no_cache(monkeypatch, tmp_path):
    from triton.runtime import cache

    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cache.get_cache_manager("00")


def no_driver(monkeypatch, tmp_path):
    from triton.backends import backends

    monkeypatch.setattr(backends["nvidia"].driver, "is_active", lambda: False)
    importlib.import_module("triton.runtime.driver")._create_driver()


def old_driver(monkeypatch, tmp_path):
    fail_in_triton(RuntimeError("Triton Error [CUDA]: device kernel image is invalid"))


def no_assembler(monkeypatch, tmp_path):
    fail_in_triton(FileNotFoundError(2, "No such file or directory", "ptxas"))


def bad_assembler(monkeypatch, tmp_path):
    errors = importlib.import_module("triton.runtime.errors")
    fail_in_triton(errors.PTXASError("Internal Triton PTX codegen error\nmore"))


def fail_in_triton(error):
    """Raise ``error`` from a function of Triton's."""

    class Failing(dict):
        def get(self, *_):
            raise error

    importlib.import_module("triton.runtime.cache").FileCacheManager.get_group(
        type("Manager", (), {"has_file": lambda self, name: Failing().get(name)})(), "file"
    )


FAILS = "Triton cannot compile or launch its kernels"
CIRCUMSTANCES = {
    no_compiler: "Triton needs a C compiler; install gcc, or name a C compiler in the environment",
    no_such_compiler: "/no/such/cc is not a usable C compiler (No such file or directory); install",
    no_headers: "Triton's stub in C does not compile (false ended with status 1); install Python's",
    no_cache: "Triton's cache of kernels cannot be written ([Errno 20] Not a directory: ",
    no_driver: f"{FAILS} (RuntimeError: 0 active drivers ([]). There should only be one.)",
    old_driver: f"{FAILS} (RuntimeError: Triton Error [CUDA]: device kernel image is invalid)",
    no_assembler: f"{FAILS} (FileNotFoundError: [Errno 2] No such file or directory: 'ptxas')",
    bad_assembler: f"{FAILS} (PTXASError: PTXAS error: Internal Triton PTX codegen error)",
}
every_circumstance = pytest.mark.parametrize("circumstance", CIRCUMSTANCES)


@needs_triton
@every_circumstance
def test_where_triton_does_not_work_eager_runs(gpu, monkeypatch, messages, tmp_path, circumstance):
    """By name or by default; one line says why, and nothing is tried twice."""
    tried = []

    def trial(index):
        tried.append(index)
        circumstance(monkeypatch, tmp_path)

    monkeypatch.setattr(triton_failures, "trial", trial)
    names = [recurrence.choose(name, "cuda").name for name in (None, "triton", "auto")]
    assert names == 3 * ["eager"]
    assert tried == [0]
    (said,) = messages()
    assert said.startswith("engine 'triton' is not available, 'eager' runs instead: ")
    reason = said.partition("instead: ")[2]
    assert reason.startswith(CIRCUMSTANCES[circumstance])
    assert circumstance is not no_cache or reason.endswith("environment variable TRITON_CACHE_DIR")


@needs_triton
@every_circumstance
def test_a_kernel_that_cannot_be_launched(monkeypatch, messages, tmp_path, circumstance):
    """After a trial that succeeded: the layer's result is that of the engine that steps in."""
    monkeypatch.setattr(triton_support, "interpreting", lambda: True)  # it takes tensors of the CPU

    def fail(*args, **kwargs):
        circumstance(monkeypatch, tmp_path)

    monkeypatch.setattr(triton_layer, "forward", fail)
    x = rand(4, 2, 3, dtype=torch.float32)
    layer = CASLSTM(3, 5, engine="triton")
    output, _ = layer(x)
    layer.engine = recurrence.default()
    assert torch.equal(output, layer(x)[0])
    assert triton_failures.why_not() is not None
    assert recurrence.choose(None, "cuda").name == "eager"
    assert sum("'eager' runs instead" in line for line in messages()) == 1


def stop(launch, _=None):
    """As a backward does."""
    try:
        launch()
    except Exception as error:
        triton_failures.stop(error)


@needs_triton
def test_a_backward_that_cannot_be_launched(monkeypatch, tmp_path):
    """There is no other engine for it: the line says what to do."""
    said = "cannot run the backward: Triton needs a C compiler; install gcc, .* CASRNN_ENGINE=eager"
    with pytest.raises(UserError, match=said):
        stop(lambda: no_compiler(monkeypatch, tmp_path))


@needs_triton
@pytest.mark.parametrize("around", [triton_failures.attempt, stop])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        torch.OutOfMemoryError("CUDA out of memory"),
        TypeError("dynamic_func() missing 1 required positional argument"),
    ],
)
def test_other_errors_keep_their_traceback(error, around):
    """Also from within Triton; no other engine hides them."""
    with pytest.raises(type(error)) as raised:
        around(lambda: fail_in_triton(error), lambda: "hidden")
    assert raised.value is error
    assert "fail_in_triton" in [frame.name for frame in raised.traceback]
    assert triton_failures.failure is None


def test_errors_from_elsewhere_are_not_of_triton(monkeypatch):
    """As of a hook that keeps what the backward needs on a disk, which is full."""

    def hook():
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        triton_failures.attempt(hook, lambda: "hidden")


@needs_triton
def test_in_the_interpreter_nothing_is_hidden(monkeypatch, tmp_path):
    monkeypatch.setattr(triton_failures, "interpreting", lambda: True)
    with pytest.raises(RuntimeError, match="Failed to find C compiler"):
        triton_failures.attempt(lambda: no_compiler(monkeypatch, tmp_path), lambda: "hidden")


def test_the_trial(gpu, monkeypatch):
    """Not while nothing can be launched; what fails in it beside Triton is raised."""
    tried = []
    monkeypatch.setattr(triton_failures, "trial", tried.append)
    with FakeTensorMode():
        assert recurrence.choose(None, "cuda").name == "triton"
    torch.vmap(lambda x: recurrence.choose(None, "cuda").name and x)(torch.zeros(2))
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert recurrence.choose(None, "cuda").name == "triton"
    assert tried == []
    recurrence.choose(None, "cuda")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    for _ in range(2):
        recurrence.choose(None, "cuda")
    assert tried == [0, 1]  # each GPU once

    def full(index):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(triton_failures, "trial", full)
    monkeypatch.setattr(triton_failures, "trials", {})
    with pytest.raises(torch.OutOfMemoryError):
        recurrence.choose(None, "cuda")


def test_kernels_are_launched_where_their_tensors_are(monkeypatch):
    """With several GPUs, of which another is the current one."""
    here = []

    @contextlib.contextmanager
    def device_of(tensor):
        here.append(tensor)
        yield
        here.pop()

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    tensor = torch.zeros(1)
    launched = triton_host.on_its_device(lambda cell, *tensors: list(here))
    assert launched("cell", None, tensor, torch.ones(1))[0] is tensor
    assert here == []
    wrapped = triton_layer_loop.forward, triton_layer_loop.backward
    assert all(hasattr(function, "__wrapped__") for function in wrapped)


def test_what_the_kernels_do_not_do_on_a_gpu_is_left_to_eager(monkeypatch):
    """Not to the default, which is the engine itself."""
    triton = recurrence.ENGINES["triton"]
    assert triton.fallback("cuda") == "eager"
    assert triton.fallback("cpu") == recurrence.default()


def test_without_triton(messages, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        reason = triton_support.missing()
    assert reason == "Triton is not installed (pip install triton)"
    monkeypatch.setattr(recurrence.ENGINES["triton"], "missing", reason)
    for _ in range(2):
        recurrence.choose("auto", "cuda")
    assert messages() == [f"engine 'triton' is not available, 'eager' runs instead: {reason}"]
    x = rand(2, 1, 2, dtype=torch.float32)
    for _ in range(2):
        output, _ = (layer := LSTM(2, 3, engine="triton"))(x)
    other = recurrence.default()
    said = f"engine 'triton' is not available, '{other}' runs instead: {reason}"
    assert messages().count(said) == 1
    layer.engine = other
    assert torch.equal(output, layer(x)[0])


def test_an_old_triton_is_not_used(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    for version, reason in (("3.5.1", "Triton 3.5.1 is too old"), ("3.10.0", "None")):
        monkeypatch.setattr(importlib.metadata, "version", lambda name, v=version: v)
        assert reason in str(triton_support.missing())
