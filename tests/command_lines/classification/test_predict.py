"""``casrnn predict``."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference import predict as predicting

from .common import LINES, train

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


def predict(capsys, *args, stdin=None, monkeypatch=None, status=0):
    """Run ``casrnn predict``; return the lines of standard output, or the error message."""
    if stdin is not None:
        reader = SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", reader)
    assert cli.main(["predict", *map(str, args)]) == status
    captured = capsys.readouterr()
    return captured.out.splitlines() if status == 0 else captured.err


def test_predict(trained, capsys, tmp_path, monkeypatch):
    text = "".join(line + "\n" for line in [*LINES, ""])
    (tmp_path / "input").write_text(text)
    path = trained / "checkpoint_best.pt"
    answers = predict(capsys, "--path", path, "--input", tmp_path / "input")
    assert len(answers) == 6
    hub = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(trained))
    for answer, found in zip(answers, hub.predict([*LINES, ""]), strict=True):
        label, probability = answer.split("\t")
        assert (label, float(probability)) == (found.label, round(found.probability, 4))
    piped = predict(
        capsys, "--path", trained, "--batch-size", 2, stdin=text.encode(), monkeypatch=monkeypatch
    )
    assert piped == answers
    # a byte order mark, as Windows writes it
    (tmp_path / "input").write_text(text, encoding="utf-8-sig")
    assert predict(capsys, "--path", path, "--input", tmp_path / "input") == answers
    every = predict(capsys, "--path", path, "--input", tmp_path / "input", "--all")
    assert all(row.count("\t") == 1 and "negative:" in row for row in every)


def test_json(trained, capsys, tmp_path):
    """The JSON has the text as it was given, and the same numbers as the tabular format."""
    (tmp_path / "input").write_text('Ein *Film*:  gut,\t"ja"\n\n', encoding="utf-8")
    command = ("--path", trained, "--input", tmp_path / "input")
    first, empty = map(json.loads, predict(capsys, *command, "--format", "json"))
    label, probability = predict(capsys, *command)[0].split("\t")
    assert first == {
        "text": 'Ein *Film*:  gut,\t"ja"',
        "label": label,
        "probability": float(probability),
    }
    assert empty["text"] == ""
    first, _ = map(json.loads, predict(capsys, *command, "--format", "json", "--all"))
    columns = dict(
        cell.rsplit(":", 1) for cell in predict(capsys, *command, "--all")[0].split("\t")
    )
    assert first["probabilities"] == {name: float(p) for name, p in columns.items()}
    assert first["label"] == label


def test_json_of_pairs():
    found = json.loads(predicting.as_json(("a", "ä"), [0.25, 0.75], ["no", "yes"], False))
    assert found == {"text": "a", "pair": "ä", "label": "yes", "probability": 0.75}


def test_warning_of_a_line_of_one_unknown_word(trained, capsys, tmp_path):
    """A warning says so once, but not for several words, or for a word that is known."""
    (tmp_path / "input").write_text("film\n好电影\n\n坏电影\n", encoding="utf-8")
    assert cli.main(["predict", "--path", str(trained), "--input", str(tmp_path / "input")]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 4
    assert captured.err.count("\n") == 1
    assert "input, line 2 is a single word that the model does not know, and" in captured.err
    (tmp_path / "input").write_text("影\n", encoding="utf-8")
    command = ["--path", str(trained), "--input", str(tmp_path / "input")]
    assert cli.main(["predict", *command, "--tokenizer", "character"]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "input").write_text("film\nunheard 好电影\n", encoding="utf-8")
    assert cli.main(["predict", "--path", str(trained), "--input", str(tmp_path / "input")]) == 0
    assert capsys.readouterr().err == ""


def test_vectors_for_unknown_words(trained, capsys, tmp_path):
    (tmp_path / "input").write_text("unheard\n")
    size = torch.load(trained / "checkpoint_best.pt", weights_only=False)["model"][
        "encoder.embed_tokens.weight"
    ].size(1)
    (tmp_path / "vectors").write_text(f"unheard {' '.join(['3'] * size)}\n")
    command = ["--path", trained, "--input", tmp_path / "input"]
    before = predict(capsys, *command)
    assert predict(capsys, *command, "--encoder-embed-path", tmp_path / "vectors") != before


def test_a_packed_model(trained, capsys, tmp_path, monkeypatch):
    """A packed model needs no other files, knows its tokenizer, and also loads in Python."""
    (tmp_path / "input").write_text("".join(line + "\n" for line in LINES))
    expected = predict(capsys, "--path", trained, "--input", tmp_path / "input")
    model = tmp_path / "model.casrnn"
    assert cli.main(["pack", str(trained), "--output", str(model)]) == 0
    assert "checkpoint_best.pt (cas_lstm_sentence_encoder_tiny) -> " in capsys.readouterr().out
    assert predict(capsys, "--path", model, "--input", tmp_path / "input") == expected
    hub = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(model))
    assert [label for label, _ in hub.predict(LINES)] == [row.split("\t")[0] for row in expected]
    error = cli.main(["pack", str(trained), "--output", str(model), "--tokenizer", "moses"])
    assert error == 2
    assert "--tokenizer and --bpe-codes are for translation models; dr" in capsys.readouterr().err


def test_output_is_utf8(trained, tmp_path, monkeypatch):
    """The encoding does not depend on the locale."""
    (tmp_path / "input").write_text("good\n")
    monkeypatch.setattr(predicting, "format_prediction", lambda *_: "schön")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert cli.main(["predict", "--path", str(trained), "--input", str(tmp_path / "input")]) == 0
    assert sys.stdout.buffer.getvalue() == "schön\n".encode()


def test_another_tokenizer(trained, capsys, tmp_path):
    (tmp_path / "input").write_text(f"{LINES[0].replace(' ', ', ')}\n")
    command = ["--path", trained, "--all", "--input", tmp_path / "input"]
    load = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained
    line = (tmp_path / "input").read_text().rstrip()
    answers = []
    for options, own in (([], {}), (["--tokenizer", "space"], {"raw_tokenizer": "space"})):
        answers += predict(capsys, *command, *options)
        expected = load(str(trained), **own).probabilities([line]).max()
        assert f":{expected:.4f}" in answers[-1]
    assert answers[0] != answers[1]


def test_predict_pairs(pair_data, capsys, tmp_path, monkeypatch):
    train(pair_data, tmp_path, "sentence_state_lstm", 1)
    text = b"a good film\ta dull film\nit\tit\n"
    answers = predict(capsys, "--path", tmp_path, stdin=text, monkeypatch=monkeypatch)
    assert len(answers) == 2
    error = predict(
        capsys, "--path", tmp_path, stdin=b"a\tb\nalone\n", monkeypatch=monkeypatch, status=2
    )
    assert error == (
        "error: standard input, line 2 has 1 column(s); this model compares two sentences, so "
        "write SENTENCE<TAB>SENTENCE\n"
    )


def test_lines_before_an_invalid_one_are_answered(trained, capsys, monkeypatch):
    reader = SimpleNamespace(buffer=io.BytesIO(b"gut\nschlecht\n\xff\ngut\n"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", reader)
    assert cli.main(["predict", "--path", str(trained)]) == 2
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert "line 3 is not valid UTF-8" in captured.err


def test_wrong_input_of_predict(trained, capsys, tmp_path, monkeypatch):
    def error(*args, **kwargs):
        text = predict(capsys, *args, monkeypatch=monkeypatch, status=2, **kwargs)
        assert text.count("\n") == 1
        return text

    assert "line 2 is not valid UTF-8" in error("--path", trained, stdin=b"a\n\xff\n")
    assert "checkpoint /nowhere does not exist" in error("--path", "/nowhere")
    assert "--batch-size is 0" in error("--path", trained, "--batch-size", "0")
    assert "cannot be read" in error("--path", trained, "--input", "/nowhere")
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    assert "is not a checkpoint" in error("--path", tmp_path / "other.pt", stdin=b"")
    (tmp_path / "broken.pt").write_bytes(b"nothing")
    assert "cannot be read" in error("--path", tmp_path / "broken.pt", stdin=b"")
    with pytest.raises(UserError, match="cannot be read"):
        MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(tmp_path / "broken.pt"))
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed; name a file" in predict(capsys, "--path", trained, status=2)


def test_a_model_with_nan_weights(trained, capsys, tmp_path, monkeypatch):
    state = torch.load(trained / "checkpoint_best.pt", weights_only=False)
    state["model"]["encoder.embed_tokens.weight"].fill_(float("nan"))
    torch.save(state, tmp_path / "model.pt")
    path = tmp_path / "model.pt"
    error = predict(capsys, "--path", path, stdin=b"a\n", monkeypatch=monkeypatch, status=2)
    expected = f"checkpoint {path} has weights in encoder.embed_tokens.weight that are not finite"
    assert error.startswith(f"error: {expected}")
    with pytest.raises(UserError, match=r"weights in encoder\.embed_tokens\.weight"):
        MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(path))


def test_terminal_input_is_answered_line_by_line(trained, capsys, monkeypatch):
    """The second line is only read when the first has been answered."""
    heard = []

    class Typed(io.BytesIO):
        def __iter__(self):
            for line in (b"a good film\n", b"a dull film\n"):
                heard.append(capsys.readouterr().out.count("\n"))
                yield line

    stdin = SimpleNamespace(buffer=Typed(), isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli.main(["predict", "--path", str(trained)]) == 0
    assert heard == [0, 1]


@pytest.mark.full
def test_output_to_a_closed_pipe(trained, tmp_path):
    (tmp_path / "input").write_text("good\n" * 20000)  # more answers than a pipe's buffer holds
    program = "import sys; from fairseq_casrnn.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "predict", "--path", str(trained)]
    command += ["--input", str(tmp_path / "input")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
