"""The scripts of benchmarks/, run with tiny sizes."""

import re
import subprocess
import sys
from argparse import ArgumentTypeError
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import cold_start  # noqa: E402
import commands  # noqa: E402
import cross_entropy  # noqa: E402
import decoding  # noqa: E402
import language_modeling  # noqa: E402
import lengths  # noqa: E402
import machine  # noqa: E402
import memory  # noqa: E402
import rare_words  # noqa: E402
import recurrent_layers as layers  # noqa: E402
import run as report  # noqa: E402
import scaling  # noqa: E402
import sentence_encoders  # noqa: E402
import sentence_state  # noqa: E402
import synthetic  # noqa: E402
import training  # noqa: E402
import translation  # noqa: E402
from helpers import needs_triton, table_rows  # noqa: E402

from fairseq_casrnn import precision, recurrence  # noqa: E402


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs a script with options and returns what it prints."""

    def run(script, *options):
        monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *options])
        script.main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def data(monkeypatch, tmp_path):
    """Random sentence pairs with tiny vocabularies."""
    monkeypatch.setattr(synthetic, "WORDS", {"de": 40, "en": 30})
    return synthetic.write(str(tmp_path), sentences=160)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers(monkeypatch, bidirectional):
    monkeypatch.setattr(layers, "SETTINGS", {"tiny": (8, 2, 3, bidirectional)})
    text = layers.compare("tiny", ["cas_lstm", "stacked_gru"], ["eager", "reference"], 1, "cpu")
    names = ["| nn.LSTM", "| cas_lstm (eager)", "| cas_lstm (reference)", "| stacked_gru (eager)"]
    assert [row[0] for row in table_rows(text)] == 2 * ["| layer", "| ---", *names]
    assert table_rows(text)[2][4:6] == ["1.00", "1.00"]
    for row in table_rows(text)[2:6]:
        ms, step = map(float, row[1:3])
        assert step == pytest.approx(1000 * ms / (3 * layers.DEPTH), abs=0.05 * 1000 / 6 + 0.05)


def test_gpu_seconds_are_those_of_kernels(monkeypatch):
    """Host calls do not count, since the profiler adds their kernels' time to them again."""
    events = [
        SimpleNamespace(device_type=kind, self_device_time_total=micros)
        for kind, micros in (
            (DeviceType.CUDA, 300.0),
            (DeviceType.CPU, 500.0),
            (DeviceType.CUDA, 200),
        )
    ]
    found = SimpleNamespace(key_averages=lambda: events)
    monkeypatch.setattr(machine, "profile", lambda activities: nullcontext(found))
    calls = []
    assert machine.gpu_seconds(lambda: calls.append(1)) == pytest.approx(500e-6)
    assert len(calls) == 1


@pytest.mark.skipif(precision.why_not_int8() is not None, reason="int8 cannot be computed here")
def test_decoding():
    class Faster:
        """A model whose time is halved with each pass."""

        batches, time = ({"id": range(8)}, {"id": range(2)}), 1.0

        def seconds(self):
            self.time /= 2
            return self.time

        def bleu(self):
            return 30.0

    try:
        found = decoding.compare(Faster(), 2)
    finally:
        precision.set_precision("highest")
    assert found == [
        ["highest", "160", "1.00", "0.50", "30.00"],
        ["medium", "320", "2.00", "1.00", "30.00"],
        ["int8", "640", "4.00", "2.00", "30.00"],
    ]


@pytest.mark.full
@needs_triton
def test_compiling():
    """The script tells Triton that there is a GPU, so it needs a process of its own."""
    options = ["--sizes", "16", "--cells", "stacked_gru,cas_lstm", "--precisions", "bf16"]
    command = [sys.executable, str(BENCHMARKS / "compiling.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table = table_rows(done.stdout)[2:]
    kernels = ["forward_sequence", "backward_sequence", "decode_forward", "decode_backward"]
    names = [[f"| {kernel}", cell] for cell in ("stacked_gru", "cas_lstm") for kernel in kernels]
    assert [row[:2] for row in table] == names
    assert all(16 < int(row[7]) <= 255 for row in table)
    assert all(int(row[8]) == 0 for row in table if "sequence" in row[0])


def test_arithmetic_counts_the_multiplications_of_a_token():
    assert layers.arithmetic(torch.nn.LSTM(3, 5, 2)) == 4 * 5 * (3 + 5 + 5 + 5)
    assert layers.arithmetic(layers.Both(3, 5, 1)) == 2 * 4 * 5 * (3 + 5)


def test_lengths(monkeypatch):
    monkeypatch.setattr(lengths, "SETTINGS", {"tiny": (8, 3, 5)})
    text = lengths.compare("tiny", ["cas_lstm"], 1)
    peers = ["| nn.LSTM, padded", "| nn.LSTM, packed"]
    assert [row[0] for row in table_rows(text)][2:] == [*peers, "| cas_lstm"]


def test_packed_and_padded_compute_the_same_function():
    packed, padded = lengths.Packed(4, 5, 2), lengths.Padded(4, 5, 2)
    padded.load_state_dict(packed.state_dict())
    x, real = torch.randn(6, 3, 4), torch.tensor([2, 6, 1])
    mask = torch.arange(6).unsqueeze(1) < real
    found, expected = (model(x, lengths=real)[0][mask] for model in (packed, padded))
    torch.testing.assert_close(found, expected)


def test_scaling(monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "BASE", {"T": 2, "B": 2, "H": 4, "L": 1, "S": 1})
    monkeypatch.setattr(scaling, "VALUES", {"T": (1, 2), "S": (1, 3)})
    results = {axis: scaling.milliseconds(axis, 1, "cpu") for axis in scaling.VALUES}
    assert set(results["T"]) == {"nn.LSTM", "cas_lstm", "second_order_lstm"}
    assert [len(values) for values in results["S"].values()] == [2]
    panels = {axis: (scaling.VALUES[axis], curves) for axis, curves in results.items()}
    scaling.draw(panels, tmp_path / "scaling.png", "tiny")
    assert (tmp_path / "scaling.png").stat().st_size > 1000


def test_without_matplotlib(monkeypatch, tmp_path, capsys):
    """The figures are still printed."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    scaling.draw({"T": ((1, 2), {"a": [1.0, 2.0]})}, tmp_path / "plot.png", "tiny")
    assert f"{tmp_path}/plot.png is not drawn: it needs matplotlib" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_positive_options(value):
    assert machine.positive("3") == 3
    with pytest.raises(ArgumentTypeError, match=f"'{value}' is no number of at least 1"):
        machine.positive(value)


FILE = __file__
WRONG_OPTIONS = [
    (commands, "--threads", "0", "'0' is no number of at least 1"),
    (memory, "--updates", "0", "'0' is no number of at least 1"),
    (translation, "--threads", "0", "'0' is no number of at least 1"),
    (scaling, "--out", FILE, f"{FILE} is no folder"),
    (sentence_encoders, "--out", FILE, f"{FILE} is no folder"),
    (sentence_state, "--engines", "eager,triton", "'triton' is none of"),
    (layers, "--engines", "eager,triton", "'triton' is none of"),
]


@pytest.mark.parametrize(("script", "option", "value", "message"), WRONG_OPTIONS)
def test_wrong_options(monkeypatch, capsys, run, script, option, value, message):
    """They are refused before anything is measured."""
    monkeypatch.setattr(recurrence.engines.support, "interpreting", lambda: False)
    with pytest.raises(SystemExit):
        run(script, option, value)
    assert f"{option}: {message}" in capsys.readouterr().err


def test_earlier_report_is_kept_until_the_new_one_is_complete(monkeypatch, tmp_path):
    path = tmp_path / "README.md"
    path.write_text("an older one\n")
    (tmp_path / "good.py").write_text("print('figures')\n")
    (tmp_path / "bad.py").write_text("print('some'); raise SystemExit(3)\n")
    monkeypatch.setattr(report, "HERE", tmp_path)
    new_report = report.Report(path, quick=False)
    new_report.measure("good", then="plot\n")
    with pytest.raises(SystemExit, match=f"bad.py ended with status 3; .* is in {path}.part"):
        new_report.measure("bad")
    assert path.read_text() == "an older one\n"
    assert new_report.draft.read_text().endswith("\nfigures\nplot\nsome\n")
    new_report.finish()
    assert path.read_text().endswith("\nfigures\nplot\nsome\n")
    assert not new_report.draft.exists()


def test_rare_words(monkeypatch, run):
    monkeypatch.setattr(rare_words, "SIZES", [(600, 2)])
    found = table_rows(run(rare_words, "--rounds", "1"))[2:]
    assert [row[:2] for row in found] == [["| 600, 2", "adam"], ["| 600, 2", "torch_adam"]]


@pytest.mark.parametrize("name", rare_words.OPTIMIZERS)
def test_averages_of_rare_words_stay_denormal(name):
    """Otherwise there is nothing to measure after the first rounds."""
    table, adam = rare_words.table_and_optimizer(name, (600, 2))
    for _ in range(200):
        adam.step()
    averages = adam.optimizer.state[table]["exp_avg"][rare_words.FREQUENT :]
    assert (averages > 0).all()
    assert (averages < torch.finfo(torch.float32).tiny).all()


@pytest.mark.skipif("cpp" not in recurrence.installed(), reason="cpp is not compiled")
def test_cross_entropy(monkeypatch, run):
    monkeypatch.setattr(cross_entropy, "SIZES", [(6, 3, 9), (5, 2, 7)])
    table = table_rows(run(cross_entropy, "--rounds", "1"))
    assert [len(row) for row in table] == [7 if torch.cuda.is_available() else 5] * 4
    assert [row[0] for row in table[2:]] == ["| 6, 3, 9", "| 5, 2, 7"]


@pytest.mark.parametrize("mixed", [[], ["--mixed"]])
def test_sentence_encoders(monkeypatch, tmp_path, run, mixed):
    monkeypatch.setattr(sentence_encoders, "LENGTHS", (1, 3))
    options = f"--hidden-size 4 --batch-size 2 --steps 2 --rounds 1 --out {tmp_path}"
    table = table_rows(run(sentence_encoders, *options.split(), *mixed))
    assert [len(row) for row in table] == [3] * (6 if mixed else 5)
    assert table[0] == ["| length", "1", "3 |"]
    assert not mixed or table[2][:2] == ["| padding", "0%"]
    plot = "sentence_lengths_mixed.png" if mixed else "sentence_lengths.png"
    assert (tmp_path / plot).stat().st_size > 1000


def test_sentence_state(monkeypatch, run):
    options = "--hidden-size 4 --batch-size 2 --steps 2 --rounds 1 --lengths 1,3 --device cpu"
    options = [*options.split(), "--engines", "eager,reference"]
    text = run(sentence_state, *options)
    assert re.findall(r"2 sentences of (\d) words", text) == ["1", "3"]
    table = table_rows(text)
    assert [len(row) for row in table] == [5] * 10
    assert [row[3] for row in table if "nn.LSTM," in row[0]] == ["1.00"] * 2
    monkeypatch.setattr(sentence_state, "LIMITS", {"float32": 1e-12})
    with pytest.raises(SystemExit, match="engine eager is off by"):
        run(sentence_state, *options)


@pytest.mark.full
def test_translation(monkeypatch, data):
    tiny = [option.replace("256", "8") for option in translation.PEER_SIZES]
    monkeypatch.setattr(translation, "PEER_SIZES", tiny)
    args = SimpleNamespace(max_tokens=200, updates=2, rounds=1, beam=2, length=3, fast=True)
    args.dtype = "float32"
    speeds = translation.compare(data, ["lstm", "cas_lstm_tiny"], args)
    assert list(speeds) == ["lstm", "cas_lstm_tiny"]
    assert all(value > 0 for pair in speeds.values() for value in pair)


def test_decoding_moves_batches_to_the_gpu(monkeypatch):
    """fairseq's trainer moves the batches of training, but its generator does not."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine, "synchronize", lambda: None)
    monkeypatch.setattr(translation.utils, "move_to_cuda", lambda sample: {**sample, "moved": True})
    seen = []
    task = SimpleNamespace(
        build_generator=lambda models, settings: None,
        inference_step=lambda generator, models, sample: seen.append(sample["moved"]),
    )
    trainer = SimpleNamespace(model=torch.nn.Linear(1, 1))
    assert translation.decode(task, trainer, 2 * [{"id": [1, 2, 3]}], 2, 3) > 0
    assert seen == [True, True]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_dtypes(monkeypatch, has_gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    for dtype in training.DTYPES:
        if dtype == "float32" or has_gpu:
            assert training.dtype(dtype) == dtype
        else:
            with pytest.raises(ArgumentTypeError, match=f"{dtype} needs a GPU, and there is"):
                training.dtype(dtype)
    with pytest.raises(ArgumentTypeError, match="'half' is none of float32, fp16"):
        training.dtype("half")


def test_language_models(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic, "TEXT_WORDS", 40)
    tiny = [
        option.replace("300", "6").replace("600", "8") for option in language_modeling.PEER_SIZES
    ]
    monkeypatch.setattr(language_modeling, "PEER_SIZES", tiny)
    data = synthetic.write_text(str(tmp_path), tokens=90)
    args = SimpleNamespace(streams=4, steps=5, updates=2, rounds=1, dtype="float32", fast=True)
    argv = language_modeling.command("second_order_lstm_lm_tiny", data, 4, 5)
    for batch in training.batches(*training.build(argv), 2):
        assert batch["target"].shape == (4, 5)
    speeds = language_modeling.compare(data, ["lstm_lm", "second_order_lstm_lm_tiny"], args)
    assert list(speeds) == ["lstm_lm", "second_order_lstm_lm_tiny"]
    assert all(value > 0 for value in speeds.values())


@pytest.mark.full
def test_commands(monkeypatch, data, run, warm_python):
    tiny = [option.replace("256", "8") for option in translation.PEER_SIZES]
    monkeypatch.setattr(commands, "PEER_SIZES", tiny)
    monkeypatch.setattr(commands, "PRECISIONS", ("medium",))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sys, "executable", warm_python)
    options = "--archs cas_lstm_tiny --rounds 1 --updates 3 --length 3 --max-tokens 200"
    table = table_rows(run(commands, data, *options.split()))
    names = ["lstm", "cas_lstm_tiny", "cas_lstm_tiny, optimizer=torch_adam, medium"]
    assert [row[0].strip("| ") for row in table[2:]] == names
    assert all(float(row[1].replace(",", "")) > 0 for row in table[2:])


@pytest.mark.full
def test_cold_start(monkeypatch, data, run, warm_python):
    """Each program runs twice, the second time with the kernels that the first has compiled."""
    monkeypatch.setattr(sys, "executable", warm_python)
    caches, start = [], cold_start.subprocess.run

    def spy(command, env, **options):
        caches.append(env["TRITON_CACHE_DIR"])
        assert not list(Path(caches[-1]).iterdir()) or len(caches) == 2
        Path(caches[-1], "a-kernel").touch()
        return start(command, env=env, **options)

    monkeypatch.setattr(cold_start.subprocess, "run", spy)
    options = ["--archs", "cas_lstm_tiny", "--updates", "2", "--max-tokens", "100"]
    found = table_rows(run(cold_start, data, *options))
    assert [row[:2] for row in found[2:]] == [["| cas_lstm_tiny", k] for k in ("empty", "filled")]
    assert all(float(cell.strip("| ")) >= 0 for row in found[2:] for cell in row[2:])
    assert caches[0] == caches[1]


@pytest.mark.full
def test_failing_command(capsys):
    with pytest.raises(SystemExit, match="no-such-folder"):
        commands.figures("train", "no-such-folder", "--arch=lstm", pattern="wps")


def test_memory_of_layers(monkeypatch):
    peaks = {"nn.LSTM": 300, "cas_lstm": 250}
    monkeypatch.setattr(memory, "peak", lambda *command: peaks[command[-1]])
    monkeypatch.setattr(memory, "CELLS", "cas_lstm")
    assert table_rows(memory.layers_table(idle=200))[2:] == [
        ["| nn.LSTM", "100", "1.00 |"],
        ["| cas_lstm", "50", "0.50 |"],
    ]
    monkeypatch.setattr(memory, "SETTINGS", {"650": (4, 2, 3, False)})
    memory.layer("nn.LSTM")
    memory.layer("cas_lstm")


def test_median_alternates_jobs_and_drops_the_first_rounds():
    order = []
    jobs = {name: lambda name=name: order.append(name) for name in "ab"}
    assert set(machine.median_seconds(jobs, 3)) == {"a", "b"}
    assert order == ["a", "b"] * 5


@pytest.mark.full
def test_busy_machine(monkeypatch, capsys):
    ends = []
    monkeypatch.setattr(machine.atexit, "register", ends.append)
    ticks = iter([[100, 0, 0, 900, 0, 0, 0, 0], [150, 0, 0, 950, 0, 0, 0, 0]])
    monkeypatch.setattr(machine.Path, "exists", lambda path: True)
    monkeypatch.setattr(
        machine.Path, "read_text", lambda path: "cpu " + " ".join(map(str, next(ticks))) + " 0 0\n"
    )
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(machine.time, "sleep", lambda seconds: None)
    assert machine.busy_cores() == 2.0
    monkeypatch.setattr(machine, "busy_cores", lambda: 0.9)
    assert machine.warn_if_busy(1) == ""
    assert "The machine was busy: other processes took 0.9 of 4 c" in machine.warn_if_busy(4)
    first, second = ends
    assert first() is None
    assert capsys.readouterr().out == ""  # one thread on four cores
    second()
    assert capsys.readouterr().out.startswith("**At the end the machine was busy: other process")
