"""``casrnn export``."""

import json
import subprocess
import sys

import pytest

from fairseq_casrnn import cli

from .programs import fairseq


@pytest.mark.full
@pytest.mark.parametrize("form", ["onnx", "int8"])
def test_exported_translator_runs_without_torch(data, corpus, trained, tmp_path, capsys, form):
    """run.py, in a process without torch and fairseq, translates as fairseq-generate does."""
    pytest.importorskip("onnxruntime")
    path, out = trained("cas_lstm") / "checkpoint_last.pt", tmp_path / "out"
    command = ["export", "--path", path, "--format", form, "--output", out]
    assert cli.main([*map(str, command)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: decoder_step.onnx, dict.target.txt, dict.t")
    assert json.loads((out / "export.json").read_text())["format"] == form
    runner = "import sys; sys.modules['torch'] = sys.modules['fairseq'] = None; import runpy"
    runner += "; sys.argv[1:] = ['--beam', '5']; runpy.run_path(sys.path[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", runner.replace("sys.path[0]", repr(str(out / "run.py")))],
        input=(corpus / "test.xx").read_text(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    generated = fairseq("generate", data, "--path", path, "--beam", "5", "--cpu")
    expected = [text for _, _, text in generated.lines("H")]
    found = done.stdout.splitlines()
    assert len(found) == len(expected)
    if form == "onnx":
        assert found == expected


@pytest.mark.full
def test_format_torch(trained, tmp_path):
    import torch

    path, out = trained("cas_lstm") / "checkpoint_last.pt", tmp_path / "out"
    command = ["export", "--path", path, "--format", "torch", "--output", out]
    assert cli.main([*map(str, command)]) == 0
    assert {file.name for file in out.iterdir()} == {
        *("decoder_step.pt2", "dict.target.txt", "dict.txt", "encoder.pt2", "export.json")
    }
    encode = torch.export.load(out / "encoder.pt2").module()
    keys, values, mask, h, c = encode(torch.tensor([[5, 6, 2, 1], [4, 5, 6, 2]]))
    assert keys.shape == values.shape == (2, 4, h.size(-1))
    assert mask.tolist() == [[False, False, False, True], [False] * 4]
    assert h.shape == c.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--path": "no.pt"}, "checkpoint no.pt does not exist"),
        ({"--data": "."}, "dict.*.txt not found in .; name the folder"),
        ({"--output": "."}, ". exists already; give --output a new folder"),
        ({"--output": "no/out"}, "no is not a folder; create it, or correct --output"),
        ({"--output": "/proc/no"}, "/proc/no cannot be written (No such file or directory); give"),
    ],
)
def test_wrong_options(trained, tmp_path, monkeypatch, capsys, change, message):
    monkeypatch.chdir(tmp_path)
    given = {"--path": trained("cas_lstm"), "--output": "out", "--format": "torch", **change}
    command = [str(part) for pair in given.items() for part in pair]
    assert cli.main(["export", *command]) != 0
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
