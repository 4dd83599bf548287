"""The tables over several data sets, and over numbers of layers."""

import json

import pytest

from fairseq_casrnn.evaluation.tables import main


def write(out, name, *entries):
    (out / name).mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (out / name / "results.jsonl").write_text(lines)


def result(arch, seed, accuracy, train=10.0, seconds=0.5):
    return {
        "arch": arch,
        "seed": seed,
        "accuracy": accuracy,
        "train_seconds": train,
        "seconds": seconds,
    }


def test_means_and_averages(tmp_path, capsys):
    again = result("cnn", 1, 60, train=20.0)
    write(tmp_path, "books", result("cnn", 1, 50), again, result("cnn", 2, 70, train=40.0))
    write(tmp_path, "dvd", result("cnn", 1, 80), result("slstm", 1, 90, seconds=2.0))
    assert main(["sets", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| set | cnn | slstm |",
        "|---|---|---|",
        "| books | 65.00, 30 s (0.50 s) | – |",
        "| dvd | 80.00, 10 s (0.50 s) | 90.00, 10 s (2.00 s) |",
        "| **average** | 72.50, 20 s (0.50 s) | – |",
    ]


def test_results_of_other_splits_are_ignored(tmp_path, capsys):
    tested = {**result("cnn", 1, 50), "subset": "test"}
    write(tmp_path, "books", tested, {**result("cnn", 1, 90), "subset": "valid"})
    assert main(["sets", str(tmp_path)]) == 0
    assert "| books | 50.00" in capsys.readouterr().out
    assert main(["sets", str(tmp_path), "--subset", "valid"]) == 0
    assert "| books | 90.00" in capsys.readouterr().out
    assert main(["sets", str(tmp_path), "--no-average"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["| books | 50.00, 10 s (0.50 s) |"]
    assert main(["sets", str(tmp_path), "--subset", "train"]) == 2
    assert "no SET/results.jsonl with results of train" in capsys.readouterr().err


def test_averages_need_values_of_all_sets(tmp_path, capsys):
    unmeasured = result("cnn", 1, 70)
    del unmeasured["seconds"]
    write(tmp_path, "books", result("cnn", 1, 50, seconds=1.0))
    write(tmp_path, "dvd", unmeasured)
    assert main(["sets", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| books | 50.00, 10 s (1.00 s) |",
        "| dvd | 70.00, 10 s |",
        "| **average** | 60.00, 10 s |",
    ]


def test_taggers_of_spans_have_f1(tmp_path, capsys):
    for name, f1 in (("news", 40.0), ("web", 50.0)):
        write(tmp_path, name, {**result("bilstm", 1, 90), "f1": f1})
    assert main(["sets", str(tmp_path)]) == 0
    assert [line.split()[1:4] for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["news", "|", "40.00,"],
        ["web", "|", "50.00,"],
        ["**average**", "|", "45.00,"],
    ]


def test_interrupted_runs_are_ignored(tmp_path, capsys):
    cut = {**result("cnn", 2, 10), "finished": False}
    write(tmp_path, "books", result("cnn", 1, 50), cut)
    assert main(["sets", str(tmp_path)]) == 0
    output, error = capsys.readouterr()
    assert "| books | 50.00" in output
    assert error.startswith(f"warning: {tmp_path}/books/results.jsonl: cnn with seed 2 is left out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no SET/results.jsonl"),
        ("", "books/results.jsonl has no results; evaluate the runs first"),
        ("nonsense\n", "line 1 is not a result in JSON"),
        ("[1]\n", "line 1 is not a result in JSON"),
        ('{"arch": "cnn"}\n', "line 1 has no 'seed'; it has "),
        (json.dumps(result("cnn", 1, "high")), "line 1 has no finite number as 'accuracy'"),
        (json.dumps(result("cnn", 1, None)), "line 1 has no finite number as 'accuracy'"),
        (json.dumps(result("cnn", 1, 1.0, "x")), "line 1 has no finite number as 'train_seconds'"),
        (json.dumps(result("cnn", [1], 1.0)), "line 1 needs a name as 'arch' and an integer"),
    ],
)
def test_mistakes(tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "books").mkdir()
        (tmp_path / "books" / "results.jsonl").write_text(content)
    assert main(["sets", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def write_depths(out, *rows):
    lines = [{"arch": arch, "seed": seed, "bleu": bleu, **more} for arch, seed, bleu, more in rows]
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_depths(tmp_path, capsys):
    last = {"checkpoint": "last"}
    write_depths(
        tmp_path,
        ("dg_lstm_btec_10", 1, 30.0, last), ("dg_lstm_btec_10", 2, 32.0, last),
        ("stacked_gru_btec_3", 1, 33.0, last), ("dg_lstm_btec_3", 1, 34.25, last),
        ("cas_lstm_iwslt", 1, 1.0, last), ("dg_lstm_btec_3", 1, 50.0, {"checkpoint": "best"}),
    )  # fmt: skip
    assert main(["depths", str(tmp_path), "--checkpoint", "last"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| Depth | GRU | LSTM | DG-LSTM |",
        "|---|---|---|---|",
        "| 3 | 33.00 | – | 34.25 |",
        "| 10 | – | – | 31.00 ± 1.41 |",
    ]


@pytest.mark.parametrize("name", ["stacked_gru_btec_3x", "cas_lstm_btec_3"])
def test_depths_without_a_row(tmp_path, capsys, name):
    write_depths(tmp_path, (name, 1, 10, {}))
    assert main(["depths", str(tmp_path)]) == 2
    output, error = capsys.readouterr()
    assert not output
    assert f"{tmp_path}/results.jsonl has no result of CELL_btec_DEPTH" in error
