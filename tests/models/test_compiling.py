"""The kernels that are compiled ahead of a training are those that the training launches."""

import itertools
import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from helpers import FAMILIES
from recurrence.test_triton_compiling import compiled_only  # noqa: F401

from fairseq_casrnn.layers import RecurrentStack
from fairseq_casrnn.models import compiling
from fairseq_casrnn.patches.install import patches_of
from fairseq_casrnn.recurrence import engines
from fairseq_casrnn.recurrence.triton import launching as triton_launching
from fairseq_casrnn.recurrence.triton import plan as triton_plan

from .common import random_model, source, target

SIZES = {
    f"{side}_{name}": 16 for side in ("encoder", "decoder") for name in ("embed_dim", "hidden_size")
}


@pytest.fixture
def two_processors(monkeypatch):
    """With two processors, a batch of 40 uses the kernels with high tiles."""
    caches = triton_plan.chip, triton_plan._plan
    monkeypatch.setattr(triton_plan, "H200", (2, triton_plan.H200[1]))
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(triton_launching, "begun", {})
    yield
    for cache in caches:
        cache.cache_clear()


def model_of(case, variant="plain", **options):
    sizes = SIZES | {"decoder_out_embed_dim": 16, "dropout": 0.2}
    model = random_model(case, variant, **sizes | options).float().train()
    for module in model.modules():
        if isinstance(module, RecurrentStack):
            module.engine = "triton"
    return model


def run(model, rows, train):
    tokens, inputs = source(left=True), target()
    tokens, inputs = (t.repeat(-(-rows // len(t)), 1)[:rows] for t in (tokens, inputs))
    with torch.set_grad_enabled(train):
        output, _ = model.train(train)(tokens, tokens.ne(1).sum(1), inputs)
    if train:
        output.sum().backward()


def compile_all(model, monkeypatch):
    """Compile as :func:`.triton.ahead.start` does, but in one thread."""
    from fairseq_casrnn.recurrence.triton import ahead as triton_ahead

    monkeypatch.setattr(compiling, "uses_triton", lambda stack: True)
    for job in compiling.kernel_jobs(model):
        triton_ahead.run(job, torch.device("cpu"))


CASES = {
    "cas_lstm": {},
    "stacked_gru": {"encoder_bidirectional": True},
    "second_order_lstm": {},
    "dg_lstm": {"variant": "no-input-feed"},
    "stacked_lstm": {"decoder_layers": 1, "dropout": 0.0},
}


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_launched_kernels_are_compiled_ahead(name, compiled_only, two_processors, monkeypatch):  # noqa: F811
    model = model_of(next(case for case in FAMILIES if case.name == name), **CASES[name])
    compile_all(model, monkeypatch)
    ahead = {id(kernel) for kernel in compiled_only}
    names = [kernel.name for kernel in compiled_only]
    assert len(ahead) == len(names)  # each kernel once
    assert names.count("decode_backward") == (0 if name == "dg_lstm" else 2)
    del compiled_only[:]
    for rows, training in itertools.product((3, 40), (True, False)):
        run(model, rows, training)
    assert {id(kernel) for kernel in compiled_only} == ahead


def test_a_launch_waits_for_the_thread_that_compiles(monkeypatch):
    monkeypatch.setattr(triton_launching, "begun", {})
    compiled, may_end, waiting = [], threading.Event(), threading.Event()

    def warmup(**_):
        waiting.set()
        may_end.wait(60)
        compiled.append("kernel")

    kernel = SimpleNamespace(__name__="kernel", params=(), warmup=warmup)
    other = SimpleNamespace(__name__="other", warmup=None)

    def ahead():
        with triton_launching.compiling_only("kernel"):
            assert not triton_launching.may_launch(other, (1, 1), {"size": 4})
            assert not triton_launching.may_launch(kernel, (1, 1), {"size": 4})
            assert not triton_launching.may_launch(kernel, (1, 1), {"size": 4})

    thread = threading.Thread(target=ahead)
    thread.start()
    assert waiting.wait(60)
    assert triton_launching.may_launch(kernel, (1, 1), {"size": 5})  # of another model
    assert not compiled
    threading.Timer(0.2, may_end.set).start()
    assert triton_launching.may_launch(kernel, (1, 1), {"size": 4})
    assert compiled == ["kernel"]
    thread.join()
    assert not triton_launching._unfinished


def test_failed_compilation_is_repeated_at_the_launch(monkeypatch):
    monkeypatch.setattr(triton_launching, "begun", {})
    pytest.importorskip("triton")
    from fairseq_casrnn.recurrence.triton import ahead as triton_ahead

    def fail(**_):
        raise RuntimeError("no")

    kernel = SimpleNamespace(__name__="kernel", params=(), warmup=fail)
    job = lambda: triton_launching.may_launch(kernel, (1, 1), {})  # noqa: E731
    triton_ahead.run(triton_ahead.Job("kernel", job, 1), torch.device("cpu"))
    assert not triton_launching._unfinished
    assert triton_launching.may_launch(kernel, (1, 1), {})


def test_no_fork_while_kernels_are_compiled():
    """A worker of a DataLoader would inherit the pipes of programs that are being started."""
    pytest.importorskip("triton")
    from fairseq_casrnn.recurrence.triton import ahead as triton_ahead

    begun, may_end, order = threading.Event(), threading.Event(), []

    def compile_slowly():
        begun.set()
        may_end.wait(60)
        order.append("compiled")

    def fork():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        order.append("forked")

    def compile_later():
        order.append("compiled later")

    def start(function, *args):
        thread = threading.Thread(target=function, args=args)
        thread.start()
        return thread

    jobs = [triton_ahead.Job("kernel", run, 1) for run in (compile_slowly, compile_later)]
    threads = [start(triton_ahead.run, jobs[0], torch.device("cpu"))]
    assert begun.wait(60)
    threads.append(start(fork))
    guard = triton_ahead.fork_guard()
    while not (guard.forks or order):
        time.sleep(0.01)
    threads.append(start(triton_ahead.run, jobs[1], torch.device("cpu")))
    time.sleep(0.1)
    assert not order
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert order[0] == "compiled"
    assert set(order) == {"compiled", "forked", "compiled later"}


@pytest.mark.parametrize(("rows", "order"), [(64, "low loss high"), (250, "high loss low")])
def test_kernels_of_the_first_batches_are_compiled_first(rows, order, monkeypatch):
    pytest.importorskip("triton")
    from fairseq_casrnn.recurrence.triton import ahead as triton_ahead

    done = []
    monkeypatch.setattr(triton_ahead, "THREADS", 1)
    monkeypatch.setattr(triton_ahead, "run", lambda job, device: done.append(job.kernel))
    kernels = (("low", 1), ("low validation", 1, False), ("high", 129), ("loss", 0))
    jobs = [triton_ahead.Job(kernel, None, *of) for kernel, *of in kernels]
    before = set(threading.enumerate())
    triton_ahead.start(jobs, torch.device("cpu"), rows)
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert " ".join(done) == f"{order} low validation"


def test_the_kernels_of_the_loss(compiled_only, monkeypatch):  # noqa: F811
    from fairseq_casrnn.recurrence.cross_entropy import cross_entropy
    from fairseq_casrnn.recurrence.inputs import LossSpec
    from fairseq_casrnn.recurrence.triton import ahead as triton_ahead

    monkeypatch.setattr(triton_launching, "begun", {})
    model = model_of(FAMILIES[0])
    monkeypatch.setattr(compiling, "uses_triton", lambda stack: True)
    monkeypatch.setattr(engines, "interpreting", lambda: True)
    criterion = SimpleNamespace(needs_only_loss=lambda: True)
    assert not list(compiling.loss_jobs(model, torch.nn.Identity()))
    for job in compiling.loss_jobs(model, criterion):
        triton_ahead.run(job, torch.device("cpu"))
    ahead = {id(kernel) for kernel in compiled_only}
    assert [kernel.name for kernel in compiled_only] == ["forward_rows", "backward_rows"]
    weight, bias = model.decoder.vocabulary
    x = torch.zeros(3, weight.size(1), requires_grad=True)
    spec = LossSpec(torch.tensor([2, 3, 4]), 0.1, 1)
    cross_entropy(x, weight, bias, spec, engine="triton")[0].backward()
    assert {id(kernel) for kernel in compiled_only} == ahead


def test_nothing_is_compiled_ahead_on_a_cpu(monkeypatch):
    monkeypatch.setattr(compiling, "kernel_jobs", None)
    model = model_of(FAMILIES[0])
    result = object()
    assert compiling.compile_ahead(result, SimpleNamespace(_model=model)) is result


def test_the_patch_is_applied():
    from fairseq.trainer import Trainer

    pieces = [patch.hook for patch in patches_of(Trainer.__init__)]
    assert "models.compiling.compile_ahead" in pieces
