"""The benchmarks run, at sizes that measure nothing."""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

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
from helpers import needs_triton  # noqa: E402

from fairseq_casrnn import precision, recurrence  # noqa: E402


def rows(text):
    return [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("both", [False, True])
def test_layers(monkeypatch, both):
    monkeypatch.setattr(layers, "SETTINGS", {"tiny": (8, 2, 3, both)})
    text = layers.compare("tiny", ["cas_lstm", "stacked_gru"], ["eager", "reference"], 1, "cpu")
    names = ["| nn.LSTM", "| cas_lstm (eager)", "| cas_lstm (reference)", "| stacked_gru (eager)"]
    assert [row[0] for row in rows(text)] == 2 * ["| layer", "| ---", *names]
    assert rows(text)[2][4:6] == ["1.00", "1.00"]
    for row in rows(text)[2:6]:
        ms, step = map(float, row[1:3])
        assert step == pytest.approx(1000 * ms / (3 * layers.DEPTH), abs=0.05 * 1000 / 6 + 0.05)


@pytest.mark.skipif(precision.why_not_int8() is not None, reason="int8 cannot be computed here")
def test_decoding():
    class Faster:
        """Each pass takes half the time of the one before."""

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
    """In a process of its own, for it tells Triton that there is a GPU."""
    options = ["--sizes", "16", "--cells", "stacked_gru,cas_lstm", "--precisions", "bf16"]
    command = [sys.executable, str(BENCHMARKS / "compiling.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table = rows(done.stdout)[2:]
    ways = ["forward_sequence", "backward_sequence"]
    names = [[f"| {way}", name] for name in ("stacked_gru", "cas_lstm") for way in ways]
    assert [row[:2] for row in table] == names
    assert all(16 < int(row[7]) <= 255 and int(row[8]) == 0 for row in table)


def test_arithmetic_counts_what_a_token_is_multiplied_with():
    assert layers.arithmetic(torch.nn.LSTM(3, 5, 2)) == 4 * 5 * (3 + 5 + 5 + 5)
    assert layers.arithmetic(layers.Both(3, 5, 1)) == 2 * 4 * 5 * (3 + 5)


def test_lengths(monkeypatch):
    """Packed or padded, nn.LSTM is trained for the same."""
    monkeypatch.setattr(lengths, "SETTINGS", {"tiny": (8, 3, 5)})
    text = lengths.compare("tiny", ["cas_lstm"], 1)
    peers = ["| nn.LSTM, padded", "| nn.LSTM, packed"]
    assert [row[0] for row in rows(text)][2:] == [*peers, "| cas_lstm"]
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


SCRIPTS = [commands, memory, scaling, sentence_encoders, sentence_state, translation]


def test_without_matplotlib(monkeypatch, tmp_path, capsys):
    """The figures are printed all the same."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    scaling.draw({"T": ((1, 2), {"a": [1.0, 2.0]})}, tmp_path / "plot.png", "tiny")
    assert f"{tmp_path}/plot.png is not drawn: it needs matplotlib" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_wrong_options(monkeypatch, capsys, script, value):
    option = "--updates" if script is memory else "--threads"
    monkeypatch.setattr(sys, "argv", [script.__name__, option, value])
    with pytest.raises(SystemExit):
        script.main()
    assert f"{option}: '{value}' is no number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("script", [scaling, sentence_encoders])
def test_plots_have_a_folder_before_anything_is_measured(monkeypatch, tmp_path, capsys, script):
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", [script.__name__, "--out", str(tmp_path / "file")])
    with pytest.raises(SystemExit):
        script.main()
    assert f"--out: {tmp_path}/file is no folder" in capsys.readouterr().err


def test_a_report_is_kept_until_it_is_whole(monkeypatch, tmp_path):
    path = tmp_path / "README.md"
    path.write_text("an older one\n")
    (tmp_path / "good.py").write_text("print('figures')\n")
    (tmp_path / "bad.py").write_text("print('some'); raise SystemExit(3)\n")
    monkeypatch.setattr(report, "HERE", tmp_path)
    made = report.Report(path, quick=False)
    made.measure("good", then="plot\n")
    with pytest.raises(SystemExit, match=f"bad.py ended with status 3; .* is in {path}.part"):
        made.measure("bad")
    assert path.read_text() == "an older one\n"
    assert made.draft.read_text().endswith("\nfigures\nplot\nsome\n")
    made.finish()
    assert path.read_text().endswith("\nfigures\nplot\nsome\n")
    assert not made.draft.exists()


def test_rare_words(monkeypatch, capsys):
    monkeypatch.setattr(rare_words, "SIZES", [(600, 2)])
    monkeypatch.setattr(sys, "argv", ["rare_words.py", "--rounds", "1"])
    rare_words.main()
    found = rows(capsys.readouterr().out)[2:]
    assert [row[:2] for row in found] == [["| 600, 2", "adam"], ["| 600, 2", "torch_adam"]]


@pytest.mark.parametrize("name", rare_words.OPTIMIZERS)
def test_averages_of_rare_words_stay_denormal(name):
    """Else there is nothing to measure after the first rounds."""
    table, adam = rare_words.table_and_optimizer(name, (600, 2))
    for _ in range(200):
        adam.step()
    averages = adam.optimizer.state[table]["exp_avg"][rare_words.FREQUENT :]
    assert (averages > 0).all()
    assert (averages < torch.finfo(torch.float32).tiny).all()


@pytest.mark.skipif("cpp" not in recurrence.installed(), reason="cpp is not compiled")
def test_cross_entropy(monkeypatch, capsys):
    monkeypatch.setattr(cross_entropy, "SIZES", [(6, 3, 9), (5, 2, 7)])
    monkeypatch.setattr(sys, "argv", ["cross_entropy.py", "--rounds", "1"])
    cross_entropy.main()
    table = rows(capsys.readouterr().out)
    assert [len(row) for row in table] == [7 if torch.cuda.is_available() else 5] * 4
    assert [row[0] for row in table[2:]] == ["| 6, 3, 9", "| 5, 2, 7"]


@pytest.mark.parametrize("mixed", [[], ["--mixed"]])
def test_sentence_encoders(monkeypatch, tmp_path, capsys, mixed):
    monkeypatch.setattr(sentence_encoders, "LENGTHS", (1, 3))
    options = ["--hidden-size", "4", "--batch-size", "2", "--steps", "2", "--rounds", "1"]
    monkeypatch.setattr(
        sys, "argv", ["sentence_encoders.py", *options, *mixed, "--out", str(tmp_path)]
    )
    sentence_encoders.main()
    table = rows(capsys.readouterr().out)
    assert [len(row) for row in table] == [3] * (6 if mixed else 5)
    assert table[0] == ["| length", "1", "3 |"]
    assert not mixed or table[2][:2] == ["| padding", "0%"]
    plot = "sentence_lengths_mixed.png" if mixed else "sentence_lengths.png"
    assert (tmp_path / plot).stat().st_size > 1000


def test_sentence_state(monkeypatch, capsys):
    options = "--hidden-size 4 --batch-size 2 --steps 2 --rounds 1 --lengths 1,3 --device cpu"
    monkeypatch.setattr(sys, "argv", ["x", *options.split(), "--engines", "eager,reference"])
    sentence_state.main()
    text = capsys.readouterr().out
    assert re.findall(r"2 sentences of (\d) words", text) == ["1", "3"]
    table = rows(text)
    assert [len(row) for row in table] == [5] * 10
    assert [row[3] for row in table if "nn.LSTM," in row[0]] == ["1.00"] * 2
    monkeypatch.setattr(sentence_state, "LIMITS", {"float32": 1e-12})
    with pytest.raises(SystemExit, match="engine eager is off by"):
        sentence_state.main()


@pytest.mark.parametrize("script", [sentence_state, layers])
def test_engines_that_cannot_run_here(script, monkeypatch, capsys):
    monkeypatch.setattr(recurrence.engines.support, "interpreting", lambda: False)
    monkeypatch.setattr(sys, "argv", ["x", "--engines", "eager,triton"])
    with pytest.raises(SystemExit):
        script.main()
    assert "argument --engines: 'triton' is none of" in capsys.readouterr().err


@pytest.mark.full
def test_translation(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic, "WORDS", {"de": 40, "en": 30})
    tiny = [option.replace("256", "8") for option in translation.PEER_SIZES]
    monkeypatch.setattr(translation, "PEER_SIZES", tiny)
    data = synthetic.write(str(tmp_path), sentences=60)
    args = SimpleNamespace(max_tokens=200, updates=2, rounds=1, beam=2, length=3, fast=True)
    args.dtype = "float32"
    speeds = translation.compare(data, ["lstm", "cas_lstm_tiny"], args)
    assert list(speeds) == ["lstm", "cas_lstm_tiny"]
    assert all(value > 0 for pair in speeds.values() for value in pair)


def test_decoding_moves_batches_to_the_gpu(monkeypatch):
    """fairseq's trainer moves those of training itself, its generator does not."""
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


@pytest.mark.parametrize("dtype", training.DTYPES)
def test_dtypes(dtype):
    """Options of fairseq-train; half precision needs a GPU."""
    if dtype == "float32" or torch.cuda.is_available():
        assert training.dtype(dtype) == dtype
    else:
        with pytest.raises(argparse.ArgumentTypeError, match=f"{dtype} needs a GPU, and there is"):
            training.dtype(dtype)
    with pytest.raises(argparse.ArgumentTypeError, match="'half' is none of float32, fp16"):
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
def test_commands(monkeypatch, tmp_path, capsys, warm_python):
    monkeypatch.setattr(synthetic, "WORDS", {"de": 40, "en": 30})
    tiny = [option.replace("256", "8") for option in translation.PEER_SIZES]
    monkeypatch.setattr(commands, "PEER_SIZES", tiny)
    monkeypatch.setattr(commands, "PRECISIONS", ("medium",))
    data = synthetic.write(str(tmp_path), sentences=160)
    options = ["--archs", "cas_lstm_tiny", "--rounds", "1", "--updates", "3", "--length", "3"]
    monkeypatch.setattr(sys, "argv", ["commands.py", data, *options, "--max-tokens", "200"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sys, "executable", warm_python)
    commands.main()
    table = rows(capsys.readouterr().out)
    names = ["lstm", "cas_lstm_tiny", "cas_lstm_tiny, optimizer=torch_adam, medium"]
    assert [row[0].strip("| ") for row in table[2:]] == names
    assert all(float(row[1].replace(",", "")) > 0 for row in table[2:])


@pytest.mark.full
def test_cold_start(monkeypatch, tmp_path, capsys, warm_python):
    """Each process twice, the second with what the first has compiled."""
    monkeypatch.setattr(synthetic, "WORDS", {"de": 40, "en": 30})
    data = synthetic.write(str(tmp_path), sentences=60)
    monkeypatch.setattr(sys, "executable", warm_python)
    caches, run = [], cold_start.subprocess.run

    def spy(command, env, **options):
        caches.append(env["TRITON_CACHE_DIR"])
        assert not list(Path(caches[-1]).iterdir()) or len(caches) == 2
        Path(caches[-1], "a-kernel").touch()
        return run(command, env=env, **options)

    monkeypatch.setattr(cold_start.subprocess, "run", spy)
    options = ["--archs", "cas_lstm_tiny", "--updates", "2", "--max-tokens", "100"]
    monkeypatch.setattr(sys, "argv", ["cold_start.py", data, *options])
    cold_start.main()
    found = rows(capsys.readouterr().out)
    assert [row[:2] for row in found[2:]] == [[f"| {options[1]}", k] for k in ("empty", "filled")]
    assert all(float(cell.strip("| ")) >= 0 for row in found[2:] for cell in row[2:])
    assert caches[0] == caches[1]


@pytest.mark.full
def test_a_command_that_fails(capsys):
    with pytest.raises(SystemExit, match="no-such-folder"):
        commands.figures("train", "no-such-folder", "--arch=lstm", pattern="wps")


def test_memory_of_layers(monkeypatch):
    peaks = {"nn.LSTM": 300, "cas_lstm": 250}
    monkeypatch.setattr(memory, "peak", lambda *command: peaks[command[-1]])
    monkeypatch.setattr(memory, "CELLS", "cas_lstm")
    assert rows(memory.layers_table(idle=200))[2:] == [
        ["| nn.LSTM", "100", "1.00 |"],
        ["| cas_lstm", "50", "0.50 |"],
    ]
    monkeypatch.setattr(memory, "SETTINGS", {"650": (4, 2, 3, False)})
    memory.layer("nn.LSTM")
    memory.layer("cas_lstm")


def test_median_takes_turns_and_forgets_the_first_rounds():
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
    assert capsys.readouterr().out == ""  # one thread of four cores
    second()
    assert capsys.readouterr().out.startswith("**At the end the machine was busy: other process")
