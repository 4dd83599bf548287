"""When the engine triton is used, and what is logged if it is not."""

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
def _forget_earlier_trials(monkeypatch):
    monkeypatch.setattr(triton_failures, "failure", None)
    monkeypatch.setattr(triton_failures, "trials", {})
    for module in (triton_failures, triton_support):
        monkeypatch.setattr(module, "interpreting", lambda: False)
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)


class OtherLSTM(type(LSTM(1, 1).cells[0])):
    """A subclass, for which the LSTM's kernel must not be used."""


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
    message = f"engine 'triton' is not available, '{recurrence.default()}' runs instead: {reason}"
    assert messages().count(message) == 1


def test_reasons_to_use_another_engine(monkeypatch):
    monkeypatch.setattr(triton_support, "interpreting", lambda: True)
    cell, t = LSTM(1, 1).cells[0], torch.zeros(2)
    assert triton_support.why_not(cell, (t, None, t)) is None
    assert (
        triton_support.why_not(cell, (t.half(),), (t, None)) is None
    )  # the c below may be in float32
    for tensors, states, reason in (
        ((t.half(), t), (), "of several dtypes"),
        ((t,), (t.half(),), "of several dtypes"),
        ((t.long(),), (), "does not run in torch.int64"),
        ((t,), (t.to("meta"),), "on several devices"),
        ((t.to("meta"),), (), "these are on meta"),
    ):
        assert reason in triton_support.why_not(cell, tensors, states)
    assert triton_support.why_not(OtherLSTM(), (t,)) == "it has no kernel for OtherLSTM"


def test_every_cell_has_kernels():
    names = {kernel for row in FAMILIES.values() for kernel in row.kernels}
    kernels = pytest.importorskip("fairseq_casrnn.recurrence.triton.kernels.single_steps")
    assert set(kernels.FORWARD) == set(kernels.BACKWARD) == names


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that there is a suitable GPU."""
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
def test_unsuitable_gpus(gpu, monkeypatch, messages, capability, hip, reason):
    triton_plan.supports_grid_barrier.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    names = [recurrence.choose(name, "cuda").name for name in (None, "auto", "triton")]
    assert names == 3 * ["eager" if reason else "triton"]
    message = f"engine 'triton' is not available, 'eager' runs instead: {reason}"
    assert messages() == [message if reason else "recurrence engine: triton"]


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

    monkeypatch.setenv("CC", "false")  # a program that always fails
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
    """Raise ``error`` from within a function of Triton."""

    class Failing(dict):
        def get(self, *_):
            raise error

    importlib.import_module("triton.runtime.cache").FileCacheManager.get_group(
        type("Manager", (), {"has_file": lambda self, name: Failing().get(name)})(), "file"
    )


NO_LAUNCH = "Triton cannot compile or launch its kernels"
FAILURES = {
    no_compiler: "Triton needs a C compiler; install gcc, or name a C compiler in the environment",
    no_such_compiler: "/no/such/cc is not a usable C compiler (No such file or directory); install",
    no_headers: "Triton's stub in C does not compile (false ended with status 1); install Python's",
    no_cache: "Triton's cache of kernels cannot be written ([Errno 20] Not a directory: ",
    no_driver: f"{NO_LAUNCH} (RuntimeError: 0 active drivers ([]). There should only be one.)",
    old_driver: f"{NO_LAUNCH} (RuntimeError: Triton Error [CUDA]: device kernel image is invalid)",
    no_assembler: f"{NO_LAUNCH} (FileNotFoundError: [Errno 2] No such file or directory: 'ptxas')",
    bad_assembler: f"{NO_LAUNCH} (PTXASError: PTXAS error: Internal Triton PTX codegen error)",
}
every_failure = pytest.mark.parametrize("fail_as", FAILURES)


@needs_triton
@every_failure
def test_eager_runs_if_triton_fails_its_trial(gpu, monkeypatch, messages, tmp_path, fail_as):
    """The reason is logged once, and nothing is tried twice."""
    tried = []

    def trial(index):
        tried.append(index)
        fail_as(monkeypatch, tmp_path)

    monkeypatch.setattr(triton_failures, "trial", trial)
    names = [recurrence.choose(name, "cuda").name for name in (None, "triton", "auto")]
    assert names == 3 * ["eager"]
    assert tried == [0]
    (message,) = messages()
    assert message.startswith("engine 'triton' is not available, 'eager' runs instead: ")
    reason = message.partition("instead: ")[2]
    assert reason.startswith(FAILURES[fail_as])
    assert fail_as is not no_cache or reason.endswith("environment variable TRITON_CACHE_DIR")


@needs_triton
@every_failure
def test_a_kernel_that_cannot_be_launched(monkeypatch, messages, tmp_path, fail_as):
    """Another engine computes the layer if a launch fails after a successful trial."""
    monkeypatch.setattr(triton_support, "interpreting", lambda: True)  # accept tensors on the CPU

    def fail(*args, **kwargs):
        fail_as(monkeypatch, tmp_path)

    monkeypatch.setattr(triton_layer, "forward", fail)
    x = rand(4, 2, 3, dtype=torch.float32)
    layer = CASLSTM(3, 5, engine="triton")
    output, _ = layer(x)
    layer.engine = recurrence.default()
    assert torch.equal(output, layer(x)[0])
    assert triton_failures.why_not() is not None
    assert recurrence.choose(None, "cuda").name == "eager"
    assert sum("'eager' runs instead" in line for line in messages()) == 1


def launch_backward(launch, _=None):
    """Launch as a backward pass does."""
    try:
        launch()
    except Exception as error:
        triton_failures.stop(error)


@needs_triton
def test_a_backward_that_cannot_be_launched(monkeypatch, tmp_path):
    """No other engine can run it, so the error says what to do."""
    message = (
        "cannot run the backward: Triton needs a C compiler; install gcc, .* CASRNN_ENGINE=eager"
    )
    with pytest.raises(UserError, match=message):
        launch_backward(lambda: no_compiler(monkeypatch, tmp_path))


@needs_triton
@pytest.mark.parametrize("around", [triton_failures.attempt, launch_backward])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        torch.OutOfMemoryError("CUDA out of memory"),
        TypeError("dynamic_func() missing 1 required positional argument"),
    ],
)
def test_other_errors_keep_their_traceback(error, around):
    """No other engine hides them, even if they come from within Triton."""
    with pytest.raises(type(error)) as raised:
        around(lambda: fail_in_triton(error), lambda: "hidden")
    assert raised.value is error
    assert "fail_in_triton" in [frame.name for frame in raised.traceback]
    assert triton_failures.failure is None


def test_errors_outside_triton_are_raised(monkeypatch):
    """For example, a hook may save tensors for the backward on a disk that is full."""

    def hook():
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        triton_failures.attempt(hook, lambda: "hidden")


@needs_triton
def test_failures_in_the_interpreter_are_raised(monkeypatch, tmp_path):
    monkeypatch.setattr(triton_failures, "interpreting", lambda: True)
    with pytest.raises(RuntimeError, match="Failed to find C compiler"):
        triton_failures.attempt(lambda: no_compiler(monkeypatch, tmp_path), lambda: "hidden")


def test_trial(gpu, monkeypatch):
    """There is no trial while nothing can be launched, and errors outside Triton are raised."""
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
    assert tried == [0, 1]  # once per GPU

    def full(index):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(triton_failures, "trial", full)
    monkeypatch.setattr(triton_failures, "trials", {})
    with pytest.raises(torch.OutOfMemoryError):
        recurrence.choose(None, "cuda")


def test_kernels_run_on_the_device_of_their_tensors(monkeypatch):
    """With several GPUs, the current one may be another."""
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


def test_fallback_by_device(monkeypatch):
    """On a GPU the default engine is triton itself, so eager is the fallback."""
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
    message = f"engine 'triton' is not available, '{other}' runs instead: {reason}"
    assert messages().count(message) == 1
    layer.engine = other
    assert torch.equal(output, layer(x)[0])


def test_an_old_triton_is_not_used(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    for version, reason in (("3.5.1", "Triton 3.5.1 is too old"), ("3.10.0", "None")):
        monkeypatch.setattr(importlib.metadata, "version", lambda name, v=version: v)
        assert reason in str(triton_support.missing())
