"""``casrnn analyze gates``, ``routing``, ``subspaces`` on trained models."""

import csv
import shutil

import pytest

from fairseq_casrnn import cli
from fairseq_casrnn.analysis import plots
from fairseq_casrnn.inference import loading, tracing

from .conftest import train


@pytest.fixture(scope="module")
def mixture(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    arch = ("--arch", "second_order_lstm_lm_tiny", "--num-cells", 3, "--temperature-decay", 0.5)
    train(data, folder, *arch)
    return folder / "checkpoint_last.pt"


def analyze(capsys, what, *args, status=0):
    """Lines of the output, or the error."""
    assert cli.main(["analyze", what, *map(str, args)]) == status
    captured = capsys.readouterr()
    if status == 0:
        return captured.out.splitlines()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.full
def test_gates(data, checkpoint, tmp_path, capsys):
    files = {name: tmp_path / f"gates.{name}" for name in ("csv", "png")}
    where = (data, "--path", checkpoint, "--subset", "test")
    lines = analyze(capsys, "gates", *where, "--csv", files["csv"], "--png", files["png"])
    assert len(lines) == 2
    assert lines[1].startswith("layer 2  0.")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(files["csv"].open()))
    words = sum(len(line.split()) + 1 for line in (data.parent / "test").open())
    count = {
        name: sum(int(row["count"]) for row in rows if row["measure"] == name)
        for name in ("gate", "range", "difference")
    }
    assert count == {"gate": 16 * words, "range": words, "difference": 16 * words}
    few = analyze(capsys, "gates", *where, "--sentences", 3, "--seed", 2)
    assert few != analyze(capsys, "gates", *where, "--sentences", 3, "--seed", 3)
    assert few == analyze(capsys, "gates", *where, "--sentences", 3, "--seed", 2)


def test_routing(data, mixture, tmp_path, capsys):
    files = {name: tmp_path / f"routing.{name}" for name in ("tsv", "html")}
    where = (data, "--path", mixture, "--subset", "test")
    lines = analyze(
        capsys, "routing", *where, "--sentences", 4, "--layer", 2,
        "--tsv", files["tsv"], "--html", files["html"],
    )  # fmt: skip
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "2"]
    assert sum(float(line.split()[1].rstrip("%")) for line in lines[1:4]) == pytest.approx(
        100, abs=0.2
    )
    rows = list(csv.DictReader(files["tsv"].open(), delimiter="\t"))
    sentences = (data.parent / "test").read_text().splitlines()[:4]
    for number, sentence in enumerate(sentences, start=1):
        words = [row["word"] for row in rows if row["sentence"] == str(number)]
        assert words == ["</s>", *sentence.split()]  # what the model reads
    assert all(1 / 3 <= float(row["weight"]) <= 1 for row in rows)
    page = files["html"].read_text(encoding="utf-8")
    assert page.count("<span") == 3 + len(rows)


def test_routing_is_that_of_the_layer(data, mixture, tmp_path, capsys):
    model, task = loading.load_model(mixture, data)
    readings = list(tracing.trace_sentences(model, task, data, "test", 4, seed=None))
    written = []
    for layer in (1, 2):
        tsv = tmp_path / f"{layer}.tsv"
        where = (data, "--path", mixture, "--subset", "test", "--sentences", 4)
        analyze(capsys, "routing", *where, "--layer", layer, "--tsv", tsv)
        rows = list(csv.DictReader(tsv.open(), delimiter="\t"))
        weights = [passes[layer - 1].weights for _, (passes,) in readings]
        expected = [weight for own in weights for weight in own.amax(1).tolist()]
        written.append([float(row["weight"]) for row in rows])
        assert written[-1] == pytest.approx(expected, abs=1e-4)
    assert written[0] != pytest.approx(written[1], abs=1e-3)


def test_subspaces(data, mixture, tmp_path, capsys):
    files = {name: tmp_path / f"angles.{name}" for name in ("csv", "png")}
    lines = analyze(
        capsys, "subspaces", data, "--path", mixture, "--csv", files["csv"], "--png", files["png"]
    )
    assert len(lines) == 1 + 2 * 3
    rows = list(csv.DictReader(files["csv"].open()))
    assert len(rows) == 2 * 3 * 16
    assert all(0 < float(row["degrees"]) <= 90 for row in rows)
    assert files["png"].read_bytes().startswith(b"\x89PNG")


def test_mistakes(data, checkpoint, mixture, tmp_path, capsys):
    error = analyze(capsys, "gates", data, "--path", mixture, status=2)
    assert "has no gates on the cell below; give a model of cas_lstm, dg_lstm or" in error
    for what in ("routing", "subspaces"):
        error = analyze(capsys, what, data, "--path", checkpoint, status=2)
        assert "has no second-order LSTM" in error
    one = tmp_path / "one"
    for what, path, *options in (
        ("gates", checkpoint, "csv", "png"),
        ("routing", mixture, "html", "tsv"),
        ("subspaces", mixture, "csv", "png"),
    ):
        files = [part for option in options for part in (f"--{option}", one)]
        error = analyze(capsys, what, data, "--path", path, *files, status=2)
        assert "is named twice; give each output its own file" in error
        assert not one.exists()
    error = analyze(capsys, "routing", data, "--path", mixture, "--layer", 3, status=2)
    assert "--layer is 3; the model has the layers 1 to 2" in error
    error = analyze(capsys, "gates", data, "--path", checkpoint, "--sentences", 0, status=2)
    assert "--sentences is 0; it must be at least 1" in error
    error = analyze(capsys, "gates", data, "--path", checkpoint, "--subset", "dev", status=2)
    assert "there is no 'dev' in" in error
    error = analyze(capsys, "gates", data, "--path", tmp_path / "none.pt", status=2)
    assert "none.pt does not exist; check the path" in error
    error = analyze(capsys, "gates", data, "--path", tmp_path, status=2)
    assert f"there is no checkpoint at {tmp_path}" in error
    shutil.copy(checkpoint, tmp_path / "checkpoint_last.pt")
    analyze(capsys, "gates", data, "--path", tmp_path, "--sentences", 1)
    error = analyze(capsys, "gates", tmp_path / "none", "--path", checkpoint, status=2)
    assert "none is not a folder; give the data-bin" in error
    (tmp_path / "text.pt").write_text("no checkpoint")
    analyze(capsys, "gates", data, "--path", tmp_path / "text.pt", status=2)
    error = analyze(
        capsys, "gates", data, "--path", checkpoint, "--png", tmp_path / "no" / "x.png", status=2
    )
    assert "there is no folder" in error


def test_no_attention(data, checkpoint, tmp_path, capsys):
    png = tmp_path / "attention.png"
    arguments = ["attention", checkpoint, data, png, "--sentence", "a b"]
    assert plots.main(list(map(str, arguments))) == 2
    error = capsys.readouterr().err
    assert (
        f"{checkpoint} is a language model, not a translation model; use casrnn perplexity\n"
        in error
    )
    assert error.count("\n") == 1
