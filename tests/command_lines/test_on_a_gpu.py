"""fairseq's programs on a GPU, which is simulated; see ../simulated_gpu/device.cpp."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from simulated_gpu import run as simulated

from .programs import TRAIN, USER_DIR, Done, run

EAGER = {"CASRNN_ENGINE": "eager"}
INTERPRETED = {"TRITON_INTERPRET": "1"}
OPTIONS = [*TRAIN[1:], "--dropout", "0", "--criterion", "fused_label_smoothed_cross_entropy"]
SEARCH = ["--batch-size", "8", "--beam", "3", "--max-len-b", "6", "--num-workers", "0"]
NUMBERS = "loss", "nll_loss", "gnorm", "valid_loss"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not all(map(shutil.which, simulated.COMPILERS)), reason="there is no C++ compiler"
    ),
    pytest.mark.skipif(torch.version.cuda is not None, reason="needs a CPU build of torch"),
]


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """Variables of the environment with which a program finds a GPU."""
    return simulated.gpu(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def driver(gpu, tmp_path_factory):
    """The same with a driver for compiled kernels, which does not run them."""
    folder = tmp_path_factory.mktemp("driver")
    return gpu | simulated.driver(folder) | {"TRITON_CACHE_DIR": str(folder / "cache")}


def call(program, *args, environment=()) -> Done:
    """Run a program in its own process; it must succeed."""
    done = run(program, *args, env={**os.environ, **dict(environment)})
    assert done.returncode == 0, done.stderr
    return Done(done.stdout, done.stdout + done.stderr)


def train(data, folder, *args, environment=()) -> Done:
    """Train for three updates, then validate."""
    options = [*OPTIONS, "--save-dir", folder, "--max-update", "3", "--user-dir", USER_DIR]
    return call("fairseq-train", data, *options, *args, environment=environment)


def numbers(done: Done) -> list[list[float]]:
    """Numbers of each update and of the validation."""
    lines = re.findall(r"\{.*\}", done.log)
    found = [re.findall(rf'"({"|".join(NUMBERS)})": "([0-9.]+)"', line) for line in lines]
    return [[float(number) for _, number in line] for line in found if line]


@pytest.mark.parametrize(
    ("engine", "arch"),
    [(EAGER, "second_order_lstm_tiny"), (INTERPRETED, "cas_lstm_tiny")],
    ids=["eager", "triton"],
)
def test_training_equals_that_on_the_cpu(data, gpu, tmp_path, engine, arch):
    if engine is INTERPRETED:
        pytest.importorskip("triton")
    options = ["--arch", arch, "--batch-size", "2"]
    on_cpu = numbers(train(data, tmp_path / "cpu", "--cpu", *options))
    done = train(data, tmp_path / "gpu", *options, environment=gpu | engine)
    assert f"recurrence engine: {'eager' if engine is EAGER else 'triton'}" in done.log
    assert len(on_cpu) == 4  # three updates and the validation
    for ours, theirs in zip(numbers(done), on_cpu, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-3)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision(data, gpu, tmp_path, dtype):
    found = {}
    for name, options in (("highest", []), (dtype, [f"--{dtype}"])):
        options += ["--arch", "cas_lstm_tiny"]
        found[name] = numbers(train(data, tmp_path / name, *options, environment=gpu | EAGER))
        record = json.loads((tmp_path / name / "run.json").read_text())
        assert (record["precision"], record["device"]) == (name, "simulated GPU")
    for ours, theirs in zip(found[dtype], found["highest"], strict=True):
        assert ours == pytest.approx(theirs, abs=0.03)


@pytest.mark.parametrize("engine", [EAGER, INTERPRETED], ids=["eager", "triton"])
def test_beam_search_equals_that_on_the_cpu(data, gpu, trained, engine):
    if engine is INTERPRETED:
        pytest.importorskip("triton")
    path = trained("cas_lstm") / "checkpoint_best.pt"
    options = [data, "--path", path, *SEARCH, "--user-dir", USER_DIR]
    on_cpu = call("fairseq-generate", *options, "--cpu").lines("H")
    on_gpu = call("fairseq-generate", *options, environment=gpu | engine).lines("H")
    assert len(on_cpu) == 9
    for ours, theirs in zip(on_gpu, on_cpu, strict=True):
        assert (ours[0], ours[2]) == (theirs[0], theirs[2])
        assert float(ours[1]) == pytest.approx(float(theirs[1]), abs=1e-4)


def test_each_kernel_is_compiled_once(data, driver, tmp_path):
    """By warm-up; then neither training nor validation, nor a second search, compiles any."""
    pytest.importorskip("triton")

    def compiled() -> set[Path]:
        return set(Path(driver["TRITON_CACHE_DIR"]).rglob("*.cubin"))

    options = [*OPTIONS, "--arch", "cas_lstm_tiny"]
    call("casrnn", "warm-up", data, *options, environment=driver)
    ahead = compiled()
    assert {path.stem for path in ahead} >= {"decode_forward", "backward_sequence", "forward_rows"}
    folder = tmp_path / "run"
    for epochs in ("1", "2"):  # a resumed training, too
        more = ["--arch", "cas_lstm_tiny", "--max-epoch", epochs, "--max-update", "99"]
        train(data, folder, *more, environment=driver)
    assert compiled() == ahead
    search = [data, "--path", folder / "checkpoint_last.pt", *SEARCH, "--user-dir", USER_DIR]
    call("fairseq-generate", *search, environment=driver)
    by_search = compiled()
    call("fairseq-generate", *search, environment=driver)
    assert compiled() == by_search
