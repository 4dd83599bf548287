"""``casrnn tag``, and taggers from Python."""

import copy
import io
import pickle
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

from fairseq_casrnn import cli
from fairseq_casrnn.data.tag_constraints import constraints, violations
from fairseq_casrnn.errors import UserError

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]
LINES = ["Clara Schmidt saw Rome, in 1998.", "", "the town"]
WORDS = [["Clara", "Schmidt", "saw", "Rome", ",", "in", "1998", "."], [], ["the", "town"]]


@pytest.fixture(scope="module")
def hub(trained, data, tmp_path_factory):
    """A folder as one would hand it on: the checkpoint and the dictionaries."""
    folder = tmp_path_factory.mktemp("model")
    shutil.copy(trained / "checkpoint_best.pt", folder / "model.pt")
    for part in ("input0", "label", "spelling"):
        (folder / part).mkdir()
        shutil.copy(data / part / "dict.txt", folder / part)
    return MODEL_REGISTRY["cas_lstm_tagger"].from_pretrained(str(folder))


@pytest.mark.full
def test_copies_answer_the_same(hub):
    for copied in (copy.deepcopy(hub), pickle.loads(pickle.dumps(hub))):
        assert copied.tag(LINES) == hub.tag(LINES)


def tag(capsys, *args, stdin=None, monkeypatch=None, status=0):
    """Standard output, or the error."""
    if stdin is not None:
        reader = SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", reader)
    assert cli.main(["tag", *map(str, args)]) == status
    captured = capsys.readouterr()
    return captured.out if status == 0 else captured.err


def test_tag(trained, hub, capsys, tmp_path, monkeypatch):
    text = "".join(line + "\n" for line in LINES)
    (tmp_path / "input").write_text(text)
    found = hub.tag(LINES)
    assert [[word for word, _ in row] for row in found] == WORDS
    assert [tag for _, tag in found[0]] == ["B-PER", "E-PER", "O", "S-LOC", "O", "O", "O", "O"]
    printed = tag(capsys, "--path", trained, "--input", tmp_path / "input")
    assert printed == "".join(
        "".join(f"{word}\t{tag}\n" for word, tag in row) + "\n" for row in found
    )
    piped = tag(
        capsys, "--path", trained / "checkpoint_best.pt", "--inline", "--batch-size", 1,
        stdin=text.encode(), monkeypatch=monkeypatch,
    )  # fmt: skip
    rows = [" ".join(f"{word}/{tag}" for word, tag in row) + "\n" for row in found]
    assert piped == "".join(rows)
    split = tag(
        capsys, "--path", trained, "--tokenizer", "space", "--inline",
        stdin=b"Rome, it\n", monkeypatch=monkeypatch,
    )  # fmt: skip
    assert [word.rpartition("/")[0] for word in split.split()] == ["Rome,", "it"]
    split = tag(
        capsys, "--path", trained, "--tokenizer", "space",
        stdin="in\u00a0Rome \u2028 it\x85\n".encode(), monkeypatch=monkeypatch,
    )  # fmt: skip
    assert [line.split()[0] for line in split.splitlines()[:-1]] == ["in_Rome", "_", "it"]


def test_tags_keep_to_their_scheme(hub):
    """Also where the transitions that training has learnt would break it."""
    free = copy.deepcopy(hub)
    classes = free.classes
    with torch.no_grad():
        free.model.crf.transitions[classes.index("O"), classes.index("I-PER")] = 100.0
    rules = constraints(tuple(classes))

    def broken():
        (words,) = free.tag(["the old town saw Rome"])
        return violations(rules, torch.tensor([classes.index(tag) for _, tag in words]))

    assert broken() == 0
    free.task.cfg.unconstrained_tags = True
    assert broken() > 0


def test_answers_are_in_utf8(trained, tmp_path, monkeypatch):
    """As the text is, whatever the locale."""
    (tmp_path / "input").write_text("Zürich\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert cli.main(["tag", "--path", str(trained), "--input", str(tmp_path / "input")]) == 0
    assert sys.stdout.buffer.getvalue().startswith("Zürich\t".encode())


def test_answers_do_not_depend_on_the_batch(hub):
    together = hub.tag(LINES)
    assert hub.tag(LINES, batch_size=1) == together
    assert [hub.tag([line])[0] for line in LINES] == together
    assert hub.tag(WORDS) == together
    assert hub.tag([]) == []
    assert hub.tag([""]) == [[]]


@pytest.mark.parametrize("sentences", ["a string", [5], [["a", 5]], [["a", ""]]])
def test_what_are_no_sentences(hub, sentences):
    with pytest.raises(UserError):
        hub.tag(sentences)


def test_mistakes(trained, data, capsys, tmp_path, monkeypatch):
    error = tag(capsys, "--path", tmp_path, status=2)
    assert error.startswith(f"error: there is no checkpoint at {tmp_path}")
    error = tag(capsys, "--path", trained, "--batch-size", 0, status=2)
    assert error == "error: --batch-size is 0; it must be at least 1\n"
    error = tag(capsys, "--path", trained, "--input", tmp_path / "none", status=2)
    assert "none cannot be read (No such file or directory); check --input" in error
    (tmp_path / "latin").write_bytes(b"fine\ncaf\xe9\n")
    error = tag(capsys, "--path", trained, "--input", tmp_path / "latin", status=2)
    assert "latin, line 2 is not valid UTF-8" in error
    with pytest.raises(SystemExit, match="2"):
        cli.main(["tag", "--path", str(trained), "--tokenizer", "bert"])
    assert "argument --tokenizer: invalid choice: 'bert' (choose from" in capsys.readouterr().err
    error = tag(capsys, "--path", trained, "--data", tmp_path, status=2)
    wanted = "input0/dict.txt, label/dict.txt and spelling/dict.txt are not in"
    assert f"{wanted} {tmp_path}; name" in error
    assert cli.main(["predict", "--path", str(trained), "--input", str(tmp_path / "latin")]) == 2
    assert "is no sentence classifier; check the path" in capsys.readouterr().err


def test_a_folder_without_the_characters(trained, data, tmp_path, capsys):
    for part in ("input0", "label"):
        (tmp_path / part).mkdir()
        shutil.copy(data / part / "dict.txt", tmp_path / part)
    error = tag(capsys, "--path", trained, "--data", tmp_path, status=2)
    assert "spelling/dict.txt are not in" in error
    assert error.count("\n") == 1


def test_other_characters(trained, data, tmp_path, capsys):
    """The same in another order would give other tags without a word."""
    for part in ("input0", "label", "spelling"):
        (tmp_path / part).mkdir()
        shutil.copy(data / part / "dict.txt", tmp_path / part)
    path = tmp_path / "spelling" / "dict.txt"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    error = tag(capsys, "--path", trained, "--data", tmp_path, status=2)
    assert "spelling/dict.txt is not the dictionary that the model was trained with" in error
    shutil.copy(data / "spelling" / "dict.txt", path)
    tag(capsys, "--path", trained, "--data", tmp_path, "--input", path)
