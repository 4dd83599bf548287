"""``casrnn tag``, and ``from_pretrained`` of taggers."""

import copy
import io
import json
import pickle
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

from fairseq_casrnn import cli
from fairseq_casrnn.data.tag_constraints import constraints, violations
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.tagger_hub import Span, TaggedWord

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]
LINES = ["Clara Schmidt saw Rome, in 1998.", "", "the town"]
WORDS = [["Clara", "Schmidt", "saw", "Rome", ",", "in", "1998", "."], [], ["the", "town"]]


@pytest.fixture(scope="module")
def hub(trained, data, tmp_path_factory):
    """A folder as one would distribute it: the checkpoint and the dictionaries."""
    folder = tmp_path_factory.mktemp("model")
    shutil.copy(trained / "checkpoint_best.pt", folder / "model.pt")
    for part in ("input0", "label", "spelling"):
        (folder / part).mkdir()
        shutil.copy(data / part / "dict.txt", folder / part)
    return MODEL_REGISTRY["cas_lstm_tagger"].from_pretrained(str(folder))


@pytest.mark.full
def test_copies_give_the_same_answers(hub):
    for copied in (copy.deepcopy(hub), pickle.loads(pickle.dumps(hub))):
        assert copied.tag(LINES) == hub.tag(LINES)


def tag(capsys, *args, stdin=None, monkeypatch=None, status=0):
    """Run ``casrnn tag``; return standard output, or the error message."""
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


def test_json(trained, hub, capsys, tmp_path):
    """Offsets count the characters of the line as given, and are the same from Python."""
    text = ["Clara  Schmidt saw\tRome, in 1998.", "", "the town"]
    (tmp_path / "input").write_text("".join(line + "\n" for line in text))
    printed = tag(capsys, "--path", trained, "--input", tmp_path / "input", "--format", "json")
    found = [json.loads(line) for line in printed.splitlines()]
    assert [row["text"] for row in found] == text
    for row, words in zip(found, hub.annotate(text), strict=True):
        for word, same in zip(row["words"], words, strict=True):
            assert row["text"][word["start"] : word["end"]] == word["text"] == same.text
            assert word["tag"] == same.tag
            assert word["probability"] == round(same.probability, 4)
    assert [(s["type"], s["start"], s["end"], s["text"]) for s in found[0]["spans"]] == [
        ("PER", 0, 14, "Clara  Schmidt"), ("LOC", 19, 23, "Rome"),
    ]  # fmt: skip
    assert found[1] == {"text": "", "words": [], "spans": []}


def test_probability_of_a_span_is_that_of_its_least_probable_word(hub):
    words = [TaggedWord("New", "B-LOC", 0.9, 3, 6), TaggedWord("York", "E-LOC", 0.5, 8, 12),
             TaggedWord(".", "O", 0.1, 12, 13)]  # fmt: skip
    assert hub.spans_of(words, "in New  York.") == [Span("LOC", 3, 12, "New  York", 0.5)]


def test_spans(trained, hub, capsys, tmp_path):
    (tmp_path / "input").write_text("the town\nClara Schmidt saw Rome\n")
    options = ("--input", tmp_path / "input", "--format", "spans", "--batch-size", 1)
    printed = tag(capsys, "--path", trained, *options)
    person, place = hub.spans(["Clara Schmidt saw Rome"])[0]
    assert printed == (
        f"2\t0\t13\tPER\t{person.probability:.4f}\tClara Schmidt\n"
        f"2\t18\t22\tLOC\t{place.probability:.4f}\tRome\n"
    )


def test_probabilities_are_marginals(hub):
    """Probabilities sum to 1 over the tags, and do not depend on padding."""
    together = hub.annotate(LINES)
    for line, words in zip(LINES, together, strict=True):
        (alone,) = hub.annotate([line])
        assert [word.probability for word in alone] == pytest.approx([w.probability for w in words])
        assert all(0 < word.probability <= 1 for word in words)
    assert [[word[:2] for word in row] for row in together] == [list(r) for r in hub.tag(LINES)]
    emissions = torch.randn(2, 3, len(hub.classes))
    sums = hub.model.marginals(emissions, torch.tensor([3, 2]), hub.task.constraints).sum(-1)
    torch.testing.assert_close(sums, torch.tensor([[1.0, 1, 1], [1, 1, 0]]).double())


@pytest.mark.parametrize(
    "text",
    [
        "Clara\nSchmidt\nsaw\nRome\n\n\n-DOCSTART-\n\nthe\ntown",
        "# text = a\ttab\nClara NNP\nSchmidt NNP\nsaw VB\nRome NNP\n\nthe DT\ntown NN\n",
        "# a comment\nClara\tNNP\nSchmidt\tNNP\nsaw\tVB\nRome\tNNP\n\nthe\tDT\ntown\tNN\n",
        # ten columns, but not CoNLL-U
        "".join(
            word + "\t_" * 9 * bool(word) + "\n"
            for word in ("Clara", "Schmidt", "saw", "Rome", "", "the", "town")
        ),
        "".join(
            f"{number}\t{word}" + "\t_" * 8 + "\n" if word else "\n"
            for number, word in (("1", "Clara"), ("2", "Schmidt"), ("3-4", "saw"), ("3", "saw"),
                                 ("4", "Rome"), ("4.1", "x"), ("", ""), ("1", "the"), ("2", "town"))
        ),
    ],
)  # fmt: skip
def test_input_in_columns(text, trained, hub, capsys, monkeypatch):
    printed = tag(
        capsys, "--path", trained, "--input-format", "columns", "--confidence",
        stdin=text.encode(), monkeypatch=monkeypatch,
    )  # fmt: skip
    assert printed == "".join(
        "".join(f"{word.text}\t{word.tag}\t{word.probability:.4f}\n" for word in row) + "\n"
        for row in hub.annotate([["Clara", "Schmidt", "saw", "Rome"], ["the", "town"]])
    )


def test_line_numbers_of_spans_in_columns(trained, capsys, monkeypatch):
    """The line number of a span is that of its sentence's first word; comment lines count."""
    text = "# a\n# b\nClara\tX\nSchmidt\tX\nsaw\tX\nRome\tX\n\n-DOCSTART-\tX\n\n"
    options = ("--path", trained, "--input-format", "columns", "--format", "spans")
    twice = text + text.replace("Clara", "the").replace("Schmidt", "town")
    printed = tag(capsys, *options, stdin=twice.encode(), monkeypatch=monkeypatch)
    lines = {row.split("\t")[0] for row in printed.splitlines() if row}
    assert lines <= {"3", "12"}
    assert "3" in lines


def test_incompatible_options(trained, capsys, tmp_path):
    (tmp_path / "input").write_text("# x\nRome\tNNP\n\tNNP\n")
    columns = ("--input-format", "columns")
    for options, message in (
        (("--format", "json", "--inline"), "--inline is for --format columns; drop one of them"),
        (("--inline", "--confidence"), "--inline cannot show --confidence; drop one"),
        (("--word-column", 2), "--word-column is for --input-format columns; give that, too"),
        ((*columns, "--tokenizer", "penn"), "--tokenizer is for text, but --input-format columns"),
        ((*columns, "--word-column", 0), "--word-column is 0; it must be at least 1"),
        ((*columns, "--word-column", 3), "input, line 2 has no word in column 3; correct it, or"),
        (columns, "input, line 3 has no word in column 1; correct it, or choose another --word-c"),
        (("--buffer-size", 0), "--buffer-size is 0; it must be at least 1"),
    ):
        command = ("--path", trained, "--input", tmp_path / "input", *options)
        error = tag(capsys, *command, status=2)
        assert message in error
        assert error.count("\n") == 1


def test_spans_of_a_part_of_speech_tagger(hub):
    other = copy.copy(hub)
    other.task = SimpleNamespace(are_spans=False)
    with pytest.raises(UserError, match="mark no spans; ask for the words' tags"):
        other.spans(["it"])


def test_a_program_that_waits_for_each_answer(trained):
    """Each line of a pipe is answered at once, and scipy and sklearn are not imported."""
    code = (
        "import sys; from fairseq_casrnn import cli\n"
        "assert cli.main(sys.argv[1:]) == 0\n"
        "print(sum(n.partition('.')[0] in ('scipy', 'sklearn') for n in sys.modules))"
    )
    command = [sys.executable, "-c", code, "tag", "--path", trained, "--buffer-size", "1"]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*map(str, command), "--inline"], **options) as program:
        for _ in range(2):
            program.stdin.write("Rome\n")
            program.stdin.flush()
            assert program.stdout.readline() == "Rome/S-LOC\n"
        assert program.communicate(timeout=60)[0] == "0\n"
        assert program.returncode == 0


def test_tags_obey_their_scheme(hub):
    """Tags are valid even if the trained transitions favour tags that violate the scheme."""
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


@pytest.mark.full
def test_a_packed_model(trained, hub, capsys, tmp_path):
    """The packed file includes the dictionary of characters."""
    model = tmp_path / "model.casrnn"
    assert cli.main(["pack", str(trained), "--output", str(model)]) == 0
    packed = MODEL_REGISTRY["cas_lstm_tagger"].from_pretrained(str(model))
    assert packed.tag(LINES) == hub.tag(LINES)
    exported = ["export", "--path", str(model), "--format", "torch", "--output"]
    assert cli.main([*exported, str(tmp_path / "exported")]) == 0
    words = (tmp_path / "exported" / "dict.txt").read_text().split()[::2]
    assert words == hub.task.dictionary.symbols[4:]


def test_output_is_utf8(trained, tmp_path, monkeypatch):
    """The encoding does not depend on the locale."""
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
def test_wrong_types_of_sentences(hub, sentences):
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
    wanted = "input0/dict.txt, label/dict.txt, spelling/dict.txt not found in"
    assert f"{wanted} {tmp_path}; name" in error
    assert cli.main(["predict", "--path", str(trained), "--input", str(tmp_path / "latin")]) == 2
    wanted = "is a tagger, not a sentence classifier; use casrnn tag\n"
    assert capsys.readouterr().err.endswith(wanted)


def test_a_folder_without_the_characters(trained, data, tmp_path, capsys):
    for part in ("input0", "label"):
        (tmp_path / part).mkdir()
        shutil.copy(data / part / "dict.txt", tmp_path / part)
    error = tag(capsys, "--path", trained, "--data", tmp_path, status=2)
    assert "spelling/dict.txt not found in" in error
    assert error.count("\n") == 1


def test_another_dictionary_of_characters(trained, data, tmp_path, capsys):
    """The same characters in another order would silently give other tags."""
    for part in ("input0", "label", "spelling"):
        (tmp_path / part).mkdir()
        shutil.copy(data / part / "dict.txt", tmp_path / part)
    path = tmp_path / "spelling" / "dict.txt"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    error = tag(capsys, "--path", trained, "--data", tmp_path, status=2)
    assert "spelling/dict.txt is not the dictionary that the model was trained with" in error
    shutil.copy(data / "spelling" / "dict.txt", path)
    tag(capsys, "--path", trained, "--data", tmp_path, "--input", path)
