"""Reading ``test.predictions.tsv``."""

import pytest

from fairseq_casrnn.report.predictions import OTHERS, read_predictions

from .common import report, table, write_run


def test_older_files_have_no_header(tmp_path):
    path = tmp_path / "test.predictions.tsv"
    path.write_text("word\tword\t0.9\nb\tword\t0.8\n")
    found = read_predictions(path)
    assert found.examples == [("word", "word", 0.9), ("b", "word", 0.8)]
    assert found.columns == []
    assert found.confusion() == (["b", "word"], [[0, 1], [0, 1]])


def test_predictions_of_a_tagger(tmp_path):
    """A single probability for a sentence is that of all its tags."""
    path = tmp_path / "test.predictions.tsv"
    sentences = [
        [("Anna", "B-PER", "B-PER", 0.7), ("sang", "O", "B-PER", 0.7)],
        [("Rome", "B-LOC", "B-LOC", 0.9)],
        [("so", "O", "O", 0.6), ("it", "O", "O", 0.8)],
    ]
    header = ("word", "gold", "predicted", "probability")
    blocks = [table(header, [])]
    blocks += [table(rows[0], rows[1:]) for rows in sentences]
    path.write_text("\n".join(blocks))
    found = read_predictions(path)
    assert found.confidences == [(0.7, False), (0.9, True), (0.6, True), (0.8, True)]
    assert found.errors(5) == [("O", "B-PER", 0.7, "sang", "Anna sang")]
    assert found.confusion() == (
        ["B-LOC", "B-PER", "O"],
        [[1, 0, 0], [0, 1, 0], [0, 1, 2]],
    )


def test_predictions_of_a_translator(tmp_path):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    rows = [(f"quelle {n}", f"source {n}", f"sauce {n}") for n in range(25)]
    header = ("source", "reference", "translation")
    (run / "test.predictions.tsv").write_text(table(header, rows))
    page = report(tmp_path, run)
    samples = page.tables["Outputs of x/seed1, sampled from the whole test set."]
    assert samples == [list(header), *(list(row) for row in rows[::3])]
    assert not any("Confusion" in label for label in page.pictures)


@pytest.mark.parametrize("first", ["gold", "word\tgold"])
def test_a_test_set_without_examples(tmp_path, first):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    (run / "test.predictions.tsv").write_text(f"{first}\tpredicted\tprobability\n")
    assert len(report(tmp_path, run).pictures) == 5


def test_rare_classes_are_merged(tmp_path):
    path = tmp_path / "test.predictions.tsv"
    names = [f"c{n:02d}" for n in range(30)]
    rows = [(name, name, 0.5) for name in names[:20] for _ in range(3)]
    rows += [("c25", "c26", 0.5), ("c25", "c00", 0.5)]
    path.write_text(table(rows[0], rows[1:]))
    classes, counts = read_predictions(path).confusion()
    assert classes == [*names[:20], OTHERS]
    assert counts[20] == [1, *[0] * 19, 1]
    assert counts[1][:3] == [0, 3, 0]


def test_calibration_by_hand(tmp_path):
    path = tmp_path / "test.predictions.tsv"
    rows = [("a", "a", 1.0), ("a", "b", 0.92), ("a", "a", 0.31), ("a", "b", 0.39)]
    path.write_text(table(rows[0], rows[1:]))
    found = read_predictions(path)
    low, high = found.calibration()
    assert low == pytest.approx((0.35, 0.5, 2))
    assert high == pytest.approx((0.96, 0.5, 2))
    assert found.calibration_error() == pytest.approx((2 * 0.15 + 2 * 0.46) / 4)
