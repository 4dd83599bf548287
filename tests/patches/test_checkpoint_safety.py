"""fairseq's checkpoints load with torch's safe loading, and are written whole or not at all."""

import argparse
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, models, tasks
from fairseq.file_io import PathManager
from fairseq.optim import build_optimizer
from omegaconf import OmegaConf
from torch.serialization import get_unsafe_globals_in_checkpoint

import fairseq_casrnn
from fairseq_casrnn.diagnostics import explain
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches import messages, programs

USER_DIR = str(Path(fairseq_casrnn.__file__).parent)
TINY = ["--encoder-embed-dim", "8", "--decoder-embed-dim", "8"]
LSTM = ["--arch", "lstm", "--encoder-hidden-size", "8", "--decoder-hidden-size", "8", *TINY]
LSTM += ["--decoder-out-embed-dim", "8"]
BLEU = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1}', "--best-checkpoint-metric", "bleu"]
BLEU += ["--maximize-best-checkpoint-metric"]


@pytest.fixture(scope="module", autouse=True)
def warm_programs(warm_python):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARM_PYTHON", warm_python)
        yield


def fairseq(program: str, *args, prefix=()) -> subprocess.CompletedProcess:
    python = [
        sys.executable if prefix else os.environ["WARM_PYTHON"]
    ]  # the warm Python does not inherit the prefix
    command = [*prefix, *python, "-m", f"fairseq_cli.{program}", *map(str, args)]
    command += ["--user-dir", USER_DIR]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def train(data: Path, save_dir: Path, *args, epochs: int = 1, **kwargs):
    options = ["--cpu", "--max-tokens", "200", "--optimizer", "adam", "--num-workers", "0"]
    options += ["--max-epoch", epochs, "--save-dir", save_dir, "--disable-validation"]
    if "--eval-bleu" in args:
        options.remove("--disable-validation")
    return fairseq("train", data, *options, *args, **kwargs)


def generate(data: Path, checkpoint: Path):
    return fairseq("generate", data, "--cpu", "--path", checkpoint, "--beam", "2")


def error_of(done: subprocess.CompletedProcess) -> str:
    """Return the error message of a command that must fail, with nothing else on stderr."""
    assert done.returncode != 0
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    return line.removeprefix("error: ")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(1)
    for split, size in (("train", 30), ("valid", 5), ("test", 5)):
        lines = ["".join(rng.choices("abcdef ", k=9)).strip() or "a" for _ in range(size)]
        (folder / f"{split}.xx").write_text("\n".join(lines) + "\n")
        (folder / f"{split}.yy").write_text("\n".join(lines).upper() + "\n")
    command = ["fairseq-preprocess", "-s", "xx", "-t", "yy", "--destdir", folder / "bin"]
    for split in ("train", "valid", "test"):
        command += [f"--{split}pref", folder / split]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def legacy(data, tmp_path_factory) -> Path:
    """A folder with checkpoints of fairseq's own lstm, with BLEU as a validation metric."""
    folder = tmp_path_factory.mktemp("lstm")
    done = train(data, folder, *LSTM, *BLEU)
    assert done.returncode == 0, done.stderr
    return folder


def test_globals_of_a_legacy_checkpoint_are_allowed(legacy):
    last = legacy / "checkpoint_last.pt"
    needed = set(get_unsafe_globals_in_checkpoint(last))
    allowed = torch.serialization.get_safe_globals()
    try:
        torch.serialization.clear_safe_globals()
        assert "argparse.Namespace" in get_unsafe_globals_in_checkpoint(last)
        assert "numpy._core.multiarray._reconstruct" in get_unsafe_globals_in_checkpoint(last)
    finally:
        torch.serialization.add_safe_globals(allowed)
    assert needed == set()
    state = checkpoint_utils.load_checkpoint_to_cpu(str(last))
    assert state["cfg"]["model"].arch == "lstm"


def test_legacy_checkpoint_generates_and_resumes(data, legacy, tmp_path):
    done = generate(data, legacy / "checkpoint_best.pt")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nH-") == 5
    shutil.copytree(legacy, tmp_path, dirs_exist_ok=True)
    done = train(data, tmp_path, *LSTM, *BLEU, epochs=2)
    assert "Loaded checkpoint" in done.stdout
    assert (tmp_path / "checkpoint2.pt").exists()


def test_dataclass_checkpoint_needs_no_globals(data, tmp_path):
    done = train(data, tmp_path, "--arch", "cas_lstm_tiny")
    assert done.returncode == 0, done.stderr
    allowed = torch.serialization.get_safe_globals()
    try:
        torch.serialization.clear_safe_globals()
        assert get_unsafe_globals_in_checkpoint(tmp_path / "checkpoint_last.pt") == []
    finally:
        torch.serialization.add_safe_globals(allowed)


class Malicious:
    """An object that runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_malicious_checkpoint_is_refused(data, legacy, tmp_path):
    state = torch.load(legacy / "checkpoint_last.pt")
    state["extra_state"]["planted"] = Malicious(tmp_path / "marker")
    bad = tmp_path / "bad.pt"
    torch.save(state, bad)
    sentence = error_of(generate(data, bad))
    assert (
        f"checkpoint {bad} was refused because it holds {os.system.__module__}.system" in sentence
    )
    assert not (tmp_path / "marker").exists()
    torch.load(bad, weights_only=False)  # without the refusal, the command would run
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "header"])
def test_damaged_checkpoint(legacy, tmp_path, damage):
    whole = (legacy / "checkpoint_last.pt").read_bytes()
    content = {"truncated": whole[:-1000], "empty": b"", "text": b"hello\n", "header": whole[:100]}
    bad = tmp_path / "bad.pt"
    bad.write_bytes(content[damage])
    with pytest.raises(Exception) as caught:  # noqa: PT011 - torch raises five kinds
        checkpoint_utils.load_checkpoint_to_cpu(str(bad))
    assert f"checkpoint {bad} cannot be read" in explain.explain(caught.value)


def test_truncated_checkpoint_on_resume(data, legacy, tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes((legacy / "checkpoint_last.pt").read_bytes()[:-1000])
    sentence = error_of(train(data, tmp_path, *LSTM))
    assert f"checkpoint {last} cannot be read" in sentence


def test_other_architecture_on_resume(data, legacy, tmp_path):
    shutil.copy(legacy / "checkpoint_last.pt", tmp_path)
    sentence = error_of(train(data, tmp_path, *LSTM, "--encoder-bidirectional"))
    assert f"checkpoint {tmp_path}/checkpoint_last.pt belongs to a model of another" in sentence
    assert "first difference: encoder." in sentence


def test_other_architecture_on_generation(data, legacy, tmp_path):
    state = torch.load(legacy / "checkpoint_last.pt")
    state["cfg"]["model"].encoder_hidden_size = 9
    torch.save(state, tmp_path / "bad.pt")
    sentence = error_of(generate(data, tmp_path / "bad.pt"))
    assert f"{tmp_path}/bad.pt belongs to a model of another architecture" in sentence


@pytest.mark.full
def test_full_disk_keeps_the_last_checkpoint_whole(data, legacy, tmp_path):
    """A limit on the size of files imitates a full disk: the write stops halfway."""
    shutil.copytree(legacy, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    limit = f"ulimit -f {len(before) // 2048}; "  # half its size, in the shell's unit of 1024 bytes
    done = train(data, tmp_path, *LSTM, epochs=2, prefix=["bash", "-c", limit + 'exec "$@"', "-"])
    assert f"could not write {tmp_path}/checkpoint2.pt" in error_of(done)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    assert not list(tmp_path.glob("*.tmp"))
    assert not (tmp_path / "checkpoint2.pt").exists()


def test_copying_a_checkpoint_is_whole_or_nothing(tmp_path, monkeypatch):
    source, target = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_text("new")
    target.write_text("old")

    def break_off(src, dst):
        Path(dst).write_text("n")
        raise OSError(28, "No space left on device", str(dst))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", break_off)
        with pytest.raises(OSError, match="No space"):
            PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_text() == "old"
    assert PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == [source.name, target.name]


def test_unknown_architecture(data, tmp_path):
    sentence = error_of(train(data, tmp_path, "--arch", "lstm_wisemann_iwslt_de_en"))
    assert "did you mean lstm_wiseman_iwslt_de_en" in sentence


def test_missing_data(data, tmp_path):
    def sentence(*args):
        task = tasks.setup_task(argparse.Namespace(task="translation", data=str(args[0])))
        task.load_dataset(args[1])

    with pytest.raises(FileNotFoundError) as caught:
        sentence(data / "nowhere", "train")
    assert f"{data}/nowhere does not exist" in explain.explain(caught.value)
    with pytest.raises(FileNotFoundError) as caught:
        sentence(data, "tset")
    assert f"no 'tset' dataset at {data}" in explain.explain(caught.value)


def test_registry_errors():
    def sentence(function, *args):
        with pytest.raises((KeyError, AssertionError)) as caught:
            function(*args)
        return explain.explain(caught.value)

    config = OmegaConf.create({"_name": "adamm"})
    assert sentence(build_optimizer, config, []).startswith("unknown optimizer 'adamm'; did you me")
    config = OmegaConf.create({"_name": "lstmm"})
    assert "unknown model 'lstmm'; did you mean lstm" in sentence(models.build_model, config, None)
    config = OmegaConf.create({"_name": "transation"})
    assert "unknown task 'transation'; did you mean" in sentence(tasks.setup_task, config)


def test_hook_prints_one_sentence_and_keeps_other_tracebacks(monkeypatch, capsys):
    previous, waits = [], []
    monkeypatch.setattr(messages, "wait_for_batches", lambda: waits.append(len(previous)))
    hook = messages._explaining(lambda *args: previous.append(args))
    mistake, bug = UserError("do that\ninstead"), ZeroDivisionError("a bug")
    hook(type(mistake), mistake, None)
    assert capsys.readouterr().err == "error: do that instead\n"
    assert previous == []
    hook(type(bug), bug, None)
    assert waits == [0, 1]  # waits after the hook; otherwise Python might abort
    assert previous.pop() == (type(bug), bug, None)
    hook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "interrupted\n"
    assert previous == []
    monkeypatch.setenv("CASRNN_TRACEBACK", "1")
    hook(type(mistake), mistake, None)
    assert previous.pop() == (type(mistake), mistake, None)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/bin/fairseq-train", "train"),
        ("/usr/bin/fairseq-eval-lm", "eval_lm"),
        ("/usr/bin/fairseq-hydra-train", "train"),
        ("/site/fairseq_cli/hydra_train.py", "train"),
        ("/site/fairseq_cli/train.py", "train"),
        ("/usr/bin/pytest", ""),
        ("/home/me/train.py", ""),
        ("", ""),
    ],
)
def test_only_fairseq_programs_are_changed(path, name, monkeypatch):
    monkeypatch.setattr("sys.argv", [path])
    assert programs.program_name() == name


def test_a_bug_while_handling_a_mistake_is_not_explained():
    def find(path):
        try:
            return path.read_text()
        except FileNotFoundError:
            return {}["a bug in what handles it"]

    with pytest.raises(KeyError) as caught:
        find(Path("/no/such/file"))
    assert explain.explain(caught.value) is None
