import json
import math

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import significance
from fairseq_casrnn.evaluation.depth_table import depth_table


def test_deviation_is_that_of_a_sample():
    assert significance.mean_deviation([1.0, 2.0, 3.0, 4.0]) == (2.5, math.sqrt(5 / 3))
    assert significance.mean_deviation([7.0]) == (7.0, None)


def test_one_tailed_paired_test_by_hand():
    # Differences 1, 2, 3: t = 2 / (1 / sqrt 3) = 2 sqrt 3 with 2 degrees of freedom, for which the
    # upper tail is 1/2 - t / (2 sqrt(t² + 2)).
    baseline, scores = {1: 10.0, 2: 20.0, 3: 30.0}, {3: 33.0, 1: 11.0, 2: 22.0, 9: 0.0}
    t = 2 * math.sqrt(3)
    tail = 0.5 - t / (2 * math.sqrt(t * t + 2))
    p, pairs = significance.paired_t_test(scores, baseline)
    assert pairs == 3
    assert p == pytest.approx(tail)
    assert significance.paired_t_test(baseline, scores)[0] == pytest.approx(1 - tail)


@pytest.mark.parametrize(("shift", "p"), [(1.0, 0.0), (0.0, 0.5), (-1.0, 1.0)])
def test_constant_differences(shift, p):
    baseline = {1: 10.0, 2: 20.0}
    scores = {seed: score + shift for seed, score in baseline.items()}
    assert significance.paired_t_test(scores, baseline)[0] == p


def test_two_common_seeds_are_needed():
    with pytest.raises(UserError, match="two seeds"):
        significance.paired_t_test({1: 1.0, 2: 2.0}, {2: 1.0, 3: 2.0})


def results(tmp_path, *entries):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def entry(arch, seed, bleu, **more):
    return {"arch": arch, "seed": seed, "bleu": bleu, **more}


def test_the_last_line_of_a_run_counts(tmp_path):
    path = results(tmp_path, entry("a", 1, 10), entry("a", 2, 20), entry("a", 1, 30))
    assert significance.read_results([path], "bleu") == {"a": {1: 30.0, 2: 20.0}}


def test_other_settings_are_passed_over(tmp_path):
    path = results(
        tmp_path, entry("a", 1, 10, checkpoint="best"), entry("a", 1, 30, checkpoint="last:5")
    )
    found = significance.read_results([path], "bleu", checkpoint="best", beam=None)
    assert found == {"a": {1: 10.0}}
    with pytest.raises(UserError, match="no result with subset test, checkpoint last"):
        significance.read_results([path], "bleu", checkpoint="last")


def test_other_splits_are_passed_over(tmp_path, capsys):
    """An accuracy of the training set, measured last, is no test result."""
    tested = {"arch": "a", "seed": 1, "accuracy": 70.0, "subset": "test"}
    path = results(tmp_path, tested, {**tested, "accuracy": 99.0, "subset": "train"})
    assert significance.main([str(path), "--metric", "accuracy"]) == 0
    assert capsys.readouterr().out == "a  70.00  (1 run)\n"
    assert significance.main([str(path), "--metric", "accuracy", "--subset", "train"]) == 0
    assert capsys.readouterr().out == "a  99.00  (1 run)\n"


@pytest.mark.parametrize("line", ["{", '{"arch": "a"}', "[1]", '{"arch": "a", "seed": "x"}'])
def test_a_bad_line_is_located(tmp_path, line):
    path = results(tmp_path, entry("a", 1, 10))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UserError, match=r"results\.jsonl, line 2"):
        significance.read_results([path], "bleu")


def test_table(tmp_path, capsys):
    path = results(
        tmp_path,
        entry("cas", 1, 28.5), entry("cas", 2, 28.9), entry("cas", 3, 28.7),
        entry("lstm", 1, 28.0), entry("lstm", 2, 28.1), entry("lstm", 3, 28.3),
        entry("other", 7, 1),
    )  # fmt: skip
    assert significance.main([str(path), "--baseline", "lstm"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.split() == ["lstm", "28.13", "±", "0.15", "(3", "runs)"]
    assert second.startswith("cas    28.70 ± 0.20  (3 runs)  p = 0.0")
    assert "one-tailed, 3 pairs" in second
    assert third == "other  1.00  (1 run)  no test: under two seeds in common with lstm"
    assert significance.main([str(path), "--baseline", "none"]) == 2
    assert "no result of none; there are cas, lstm, other" in capsys.readouterr().err


def test_depth_table():
    lines = depth_table(
        {
            "dg_lstm_btec_10": {1: 30.0, 2: 32.0},
            "stacked_gru_btec_3": {1: 33.0},
            "dg_lstm_btec_3": {1: 34.25},
            "cas_lstm_iwslt": {1: 1.0},
        }
    )
    assert lines == [
        "| Depth | GRU | LSTM | DG-LSTM |",
        "|---|---|---|---|",
        "| 3 | 33.00 | – | 34.25 |",
        "| 10 | – | – | 31.00 ± 1.41 |",
    ]
