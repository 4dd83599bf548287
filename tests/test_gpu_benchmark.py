"""The scripts of ``make gpu``, run on the CPU: checks of kernels, commands and the report."""

import json
import math
import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import agreement  # noqa: E402
import gpu  # noqa: E402
import gpu_commands  # noqa: E402
import machine  # noqa: E402
import problems  # noqa: E402
from agreement import Check, Outcome  # noqa: E402
from helpers import needs_triton, table_rows  # noqa: E402

from fairseq_casrnn import recurrence  # noqa: E402
from fairseq_casrnn.recurrence.triton import plan  # noqa: E402

SIZES = (4, 3, 5)
CHECK = Check("layer", "cas_lstm", SIZES, "float32")
GOOD = Outcome(1e-7, "output", True, 0.1, [])


@pytest.fixture(autouse=True)
def _restore_process_state(monkeypatch):
    """Restore the signal handler, environment variable and precision that the scripts set."""
    monkeypatch.setenv("CASRNN_TRITON_SEQUENCES", "1")  # restores the variable after the test
    handler = signal.getsignal(signal.SIGTERM)
    precision = torch.get_float32_matmul_precision()
    yield
    signal.signal(signal.SIGTERM, handler)
    torch.set_float32_matmul_precision(precision)


AGREEING = [
    (Check(kind, case, SIZES, dtype), "eager")
    for kind in ("layer", "decoder")
    for case in problems.CASES
    for dtype in ("float64", "bf16")
]
AGREEING += [(Check("sentence_state", "", SIZES, "float32"), "eager")]
AGREEING += [(Check("loss", "", SIZES, "float32"), "cpp")]
AGREEING += [(Check("choice", "", SIZES, "float32"), "reference")]  # its kernel needs a GPU
WITHOUT_KERNEL = [(Check("loss", "", SIZES, "float32"), "eager")]
for _case, (_cell, *_) in problems.CASES.items():
    # In C++, steps of beam search route hard.
    _found = WITHOUT_KERNEL if _cell == "second_order_lstm" else AGREEING
    _found.append((Check("beam", _case, SIZES, "float32"), "cpp"))
IN_INTERPRETER = [
    Check(kind, "cas_lstm" if kind in ("layer", "decoder", "beam") else "", (4, 2, 2), "float32")
    for kind in sorted({check.kind for check in agreement.checks()})
]


@pytest.mark.parametrize(("check", "engine"), AGREEING, ids=str)
def test_engines_agree(check, engine):
    if engine not in recurrence.installed():
        pytest.skip("engine cpp is not compiled")
    outcome = agreement.run(check, "cpu", engine)
    assert outcome.error <= agreement.DTYPES[check.dtype][2]
    assert outcome.repeats
    assert outcome.messages == []


@pytest.mark.skipif(not plan.interpreting(), reason="for Triton's interpreter")
@pytest.mark.parametrize("check", IN_INTERPRETER, ids=str)
def test_checks_of_kernels(check):
    """Every kind of check calls its kernel as the package does."""
    outcome = agreement.run(check, "cpu", "triton")
    assert outcome.error <= agreement.DTYPES["float32"][2]
    assert outcome.repeats


@pytest.mark.parametrize(("check", "engine"), WITHOUT_KERNEL, ids=str)
def test_engines_without_a_kernel(check, engine):
    if engine not in recurrence.installed():
        pytest.skip("engine cpp is not compiled")
    assert agreement.run(check, "cpu", engine) is None


def test_every_cell_and_dtype_is_checked():
    found = agreement.checks()
    for kind in ("layer", "decoder", "beam"):
        pairs = {(c.case, c.dtype) for c in found if c.kind == kind}
        assert len(pairs) == len(problems.CASES) * len(agreement.DTYPES)
    assert {c.kernel for c in found if c.kind == "layer"} == {"whole", "steps"}
    assert len(set(map(str, found))) == len(found)


@pytest.mark.parametrize("name", ["output", "gradient of x"])
@pytest.mark.parametrize("wrong", [1.0001, math.nan])
def test_a_wrong_engine_is_found(monkeypatch, name, wrong):
    def problem(*arguments):
        def compute(engine):
            found = {"output": torch.ones(3).double(), "gradient of x": torch.ones(2).double()}
            if engine != "reference":
                found[name][0] *= wrong
            return found

        return compute

    monkeypatch.setattr(problems, "layer", problem)
    outcome = agreement.run(CHECK, "cpu", "eager")
    assert agreement.report({CHECK: outcome})[0].endswith(f" in {name}")
    assert outcome.error > 5e-5


def test_reasons_for_a_wrong_check(capsys):
    cases = {
        "bf16": GOOD._replace(error=0.03),
        "fp16": GOOD._replace(repeats=False),
        "TF32": "ZeroDivisionError",
        "float32": GOOD._replace(messages=["engine 'triton' falls back to 'eager': why"]),
        "float64": None,
    }
    found = {CHECK._replace(dtype=dtype): outcome for dtype, outcome in cases.items()}
    other = CHECK._replace(kernel="steps")
    wrong = agreement.report({other: GOOD._replace(messages=["a message"])} | found)
    reasons = ["an error of 3.0e-02 in output", "two runs differ", "ZeroDivisionError", "falls"]
    assert len(wrong) == len(reasons)
    assert all(reason in line for reason, line in zip(reasons, wrong, strict=True))
    table = table_rows(capsys.readouterr().out)
    errors = ["1.0e-07", "**3.0e-02**", "1.0e-07", "1.0e-07", "no kernel"]
    assert [row[5] for row in table[2:]] == errors


def test_check_that_does_not_end():
    args = SimpleNamespace(processes=1, seconds=0, device="cpu", engine="eager")
    assert agreement.run_all([CHECK], args) == {CHECK: "no end in 0 s"}


@pytest.mark.full
def test_checks_in_processes(monkeypatch, capsys):
    options = ["--tiny", "--processes", "1", "--engine", "eager", "--only", "layer, stacked_gru"]
    monkeypatch.setattr(sys, "argv", ["agreement.py", *options])
    agreement.main()
    assert (
        len(table_rows(capsys.readouterr().out)) == 2 + 9
    )  # bf16, fp16, TF32, float32 and float64
    monkeypatch.setattr(agreement, "run_all", lambda wanted, args: {CHECK: "a traceback"})
    with pytest.raises(SystemExit) as end:
        agreement.main()
    assert end.value.code == 1


class ParsedError(Exception):
    """Stops a script after it has parsed its options."""


@needs_triton
@pytest.mark.parametrize("section", gpu_commands.SECTIONS)
@pytest.mark.parametrize("tiny", [False, True])
def test_scripts_accept_their_options(monkeypatch, tmp_path, section, tiny):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(recurrence, "default", lambda device: "triton")
    monkeypatch.setattr(recurrence, "installed", lambda device: list(recurrence.ENGINES))
    parse = ArgumentParser.parse_args

    def parse_only(self):
        parse(self)
        raise ParsedError

    monkeypatch.setattr(ArgumentParser, "parse_args", parse_only)
    found = gpu_commands.SECTIONS[section]("data-bin", tmp_path, tiny)
    lines = [line for command in found for line in (command.line, *command.warming)]
    for script, *options in lines:
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *options])
        with pytest.raises(ParsedError):
            __import__(script).main()
    timed = {command.line[0] for command in found}
    assert all(line[0] in timed for line in lines)


def test_tables_are_parsed_and_printed_again():
    table = machine.table(["a", "b"], [["1", ""], ["2", "3"]])
    text = f"\n## Title\n\nA line.\nAnother.\n\n{table}\n{table}\n\nEnd.\n"
    found = gpu.blocks(text)
    parsed = {"columns": ["a", "b"], "rows": [["1", ""], ["2", "3"]]}
    assert found == ["## Title\n\nA line.\nAnother.", parsed, parsed, "End."]
    entry = {"command": "python x.py", "status": 0, "seconds": 1.5, "blocks": found}
    expected = (
        f"## Title\n\n`python x.py`, 1.5 s\n\nA line.\nAnother.\n\n{table}\n{table}\nEnd.\n\n"
    )
    assert gpu.markdown(entry) == expected


def test_commands_that_fail_or_exceed_their_limit(monkeypatch, tmp_path):
    """The processes that a command started are killed, too."""
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    (tmp_path / "bad.py").write_text("import sys; print('## A'); sys.exit('why')\n")
    entry = gpu.execute(["bad", "--x"], 60)
    assert (entry["status"], entry["errors"]) == (1, "why\n")
    assert entry["command"] == "python benchmarks/bad.py --x"
    assert "**Status: 1**" in gpu.markdown(entry)
    assert gpu.markdown(entry).endswith("```\nwhy\n```\n\n")
    child = "import os, time; print('## B', flush=True); os.fork(); time.sleep(600)"
    (tmp_path / "slow.py").write_text(child)
    entry = gpu.execute(["slow"], 2)  # the fork keeps the pipe open
    assert entry["status"] == "killed after 2 s"
    assert entry["blocks"] == ["## B"]
    assert not gpu.RUNNING


@pytest.fixture
def run_gpu(monkeypatch, tmp_path):
    """A function that measures sections and returns the report."""

    def run(sections, *options):
        argv = ["gpu.py", *options, "--device", "cpu", "--tiny", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", [*argv, "--sections", sections])
        gpu.main()
        return (tmp_path / "README.md").read_text()

    return run


@pytest.fixture
def scripts(monkeypatch):
    """Records the scripts instead of running them; ``status`` has statuses other than 0."""
    found, status = [], {}

    def execute(command, limit):
        found.append(command)
        entry = gpu.entry_of(command, status.get(command[0], 0), 1.0)
        return entry | {"blocks": [f"## {command[0]}"]}

    monkeypatch.setattr(gpu, "execute", execute)
    return SimpleNamespace(found=found, status=status)


def test_sigterm_ends_all_started_processes(monkeypatch, tmp_path, run_gpu):
    """This includes the processes that compile kernels in the meantime."""
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    sleeping = "import os, sys, time; open(sys.argv[0] + '.pid', 'w').write(str(os.getpid())); "
    names = ["agreement", "recurrent_layers"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"{sleeping}time.sleep(600)")
    pids = [tmp_path / f"{name}.py.pid" for name in names]

    def terminate():
        while not all(path.exists() and path.read_text() for path in pids):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    with pytest.raises(SystemExit) as end:
        run_gpu("check,layers")
    assert end.value.code == 143
    assert not any(Path("/proc", path.read_text()).exists() for path in pids)


def test_sections(scripts, run_gpu, tmp_path):
    run_gpu("layers,check", "data-bin")
    assert scripts.found[-1][0] == "recurrent_layers"
    assert "agreement" in [command[0] for command in scripts.found[:-1]]
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert list(written["sections"]) == ["check", "layers"]
    text = run_gpu("sentence_state", "data-bin")  # keeps the other sections
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["## agreement", "## recurrent_layers", "## sentence_state"]
    written["setting"]["torch"] = "1.0"
    (tmp_path / "gpu.json").write_text(json.dumps(written))
    run_gpu("layers", "data-bin")  # drops sections measured with another torch
    assert list(json.loads((tmp_path / "gpu.json").read_text())["sections"]) == ["layers"]


def test_nothing_is_timed_after_a_wrong_kernel(scripts, run_gpu, tmp_path):
    scripts.status["agreement"] = 1
    with pytest.raises(SystemExit, match="a kernel is wrong"):
        run_gpu("check,layers", "data-bin")
    assert "## recurrent_layers" not in (tmp_path / "README.md").read_text()
    scripts.status["agreement"] = "killed after 3 s"
    with pytest.raises(SystemExit, match="could not be checked"):
        run_gpu("check", "data-bin")


def test_other_sections_run_after_a_failure(scripts, run_gpu):
    scripts.status["recurrent_layers"] = "killed after 120 s"
    text = run_gpu("layers,sentence_state", "data-bin")
    assert "**Status: killed after 120 s**" in text
    assert "## sentence_state" in text


def test_exceeded_budget(scripts, run_gpu):
    text = run_gpu("layers", "data-bin", "--budget", "1")
    assert "left out: the budget is used up" in text


@pytest.mark.parametrize(
    ("find_spec", "query", "reason"),
    [
        (lambda name: None, lambda *command: "data", "fairseq is not installed"),
        (lambda name: name, lambda *command: None, "benchmarks/synthetic.py failed; run it to se"),
    ],
)
def test_without_fairseq_or_data(scripts, run_gpu, monkeypatch, find_spec, query, reason):
    """Sections that need neither are still measured."""
    monkeypatch.setattr(gpu.importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(gpu, "query", query)
    text = run_gpu("layers,translation")
    assert f"left out: {reason}" in text
    assert "## recurrent_layers" in text


def test_temporary_path_is_not_shown(scripts, run_gpu, monkeypatch):
    monkeypatch.setattr(gpu, "query", lambda *command: "/tmp/x/bin")
    text = run_gpu("translation")
    assert any("/tmp/x/bin" in command for command in scripts.found)
    assert "`python benchmarks/translation.py --rounds 1 " in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    with pytest.raises(SystemExit, match=r"^error: torch .* sees no GPU"):
        gpu.main()


@pytest.mark.full
def test_on_the_cpu(monkeypatch, tmp_path, run_gpu, warm_python):
    """The real commands run and are reported."""
    monkeypatch.setattr(sys, "executable", warm_python)
    run_gpu("layers")
    ((entry,),) = json.loads((tmp_path / "gpu.json").read_text())["sections"].values()
    assert entry["status"] == 0
    names = ["nn.LSTM", "stacked_lstm (eager)", "cas_lstm (eager)"]
    training, inference = (block for block in entry["blocks"] if isinstance(block, dict))
    assert [row[0] for row in training["rows"]] == [row[0] for row in inference["rows"]] == names
