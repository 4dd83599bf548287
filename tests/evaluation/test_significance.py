"""Significance tests, and the table that compares architectures over seeds."""

import json
import math

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import significance, tables


def test_sample_standard_deviation():
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


def test_differences_that_only_rounding_errors_distinguish(recwarn):
    baseline, scores = {1: 41.2, 2: 41.3}, {1: 41.3, 2: 41.4}
    assert scores[1] - baseline[1] != scores[2] - baseline[2]
    assert significance.paired_t_test(scores, baseline)[0] == 0
    assert significance.paired_t_test(baseline, scores)[0] == 1
    assert not recwarn


def test_mcnemar_by_hand():
    """Of 6 sentences that one system has right, 5 are ours: p = 2 (6 + 1) / 2⁶."""
    ours = [True] * 5 + [False] + [True] * 9 + [False] * 4
    theirs = [False] * 5 + [True] + [True] * 9 + [False] * 4
    assert significance.mcnemar(ours, theirs) == (5, 1, pytest.approx(14 / 64))
    assert significance.mcnemar(theirs, ours) == (1, 5, pytest.approx(14 / 64))
    assert significance.mcnemar(ours, ours) == (0, 0, 1)
    with pytest.raises(UserError, match="19 sentences cannot be compared with 18"):
        significance.mcnemar(ours, theirs[1:])


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


def test_other_settings_are_ignored(tmp_path):
    path = results(
        tmp_path, entry("a", 1, 10, checkpoint="best"), entry("a", 1, 30, checkpoint="last:5")
    )
    found = significance.read_results([path], "bleu", checkpoint="best", beam=None)
    assert found == {"a": {1: 10.0}}
    with pytest.raises(UserError, match="no result with subset test, checkpoint last"):
        significance.read_results([path], "bleu", checkpoint="last")


def test_other_splits_are_ignored(tmp_path, capsys):
    """An accuracy on the training set, measured last, is not a test result."""
    tested = {"arch": "a", "seed": 1, "accuracy": 70.0, "subset": "test"}
    path = results(tmp_path, tested, {**tested, "accuracy": 99.0, "subset": "train"})
    assert significance.main([str(path), "--metric", "accuracy"]) == 0
    assert capsys.readouterr().out == "a  70.00  (1 run)\n"
    assert significance.main([str(path), "--metric", "accuracy", "--subset", "train"]) == 0
    assert capsys.readouterr().out == "a  99.00  (1 run)\n"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "",
        "[1]",
        '{"arch": "a"}',
        '{"arch": "a", "seed": 1}',
        '{"arch": "a", "seed": "x", "bleu": 1}',
        '{"arch": ["x"], "seed": 1, "bleu": 1}',
        '{"arch": "a", "seed": 1, "bleu": NaN}',
        '{"arch": "a", "seed": 1, "bleu": "high"}',
        '{"arch": "a", "seed": 1, "bleu": null}',
    ],
)
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
    assert "one-tailed paired t-test, 3 pairs" in second
    assert third == "other  1.00  (1 run)  no test: fewer than two seeds in common with lstm"
    assert significance.main([str(path), "--baseline", "none"]) == 2
    assert "no result of none; there are cas, lstm, other" in capsys.readouterr().err


def test_interrupted_runs_are_ignored(tmp_path, capsys):
    """There is a warning, unless a later line shows that the run has been completed."""
    cut = {"finished": False}
    path = results(
        tmp_path,
        entry("dg_lstm_btec_3", 1, 10), entry("dg_lstm_btec_3", 2, 1, **cut),
        entry("dg_lstm_btec_3", 3, 1, **cut), entry("dg_lstm_btec_3", 3, 30),
    )  # fmt: skip
    for main, row in (
        (lambda: significance.main([str(path)]), "dg_lstm_btec_3  20.00 ± 14.14  (2 runs)"),
        (lambda: tables.main(["depths", str(tmp_path)]), "| 3 | – | – | 20.00 ± 14.14 |"),
    ):
        assert main() == 0
        output, error = capsys.readouterr()
        assert output.splitlines()[-1] == row
        assert error.startswith(
            f"warning: {path}: dg_lstm_btec_3 with seed 2 is left out because its "
        )
        assert error.count("\n") == 1


def test_several_files(tmp_path):
    """Runs of one architecture are combined; for duplicate runs the later file counts."""
    paths = []
    for name, lines in (
        ("one", [entry("a", 1, 10), entry("a", 2, 20), entry("b", 1, 5)]),
        ("two", [entry("a", 2, 25), entry("a", 3, 30)]),
    ):
        (tmp_path / name).mkdir()
        paths.append(results(tmp_path / name, *lines))
    assert significance.read_results(paths, "bleu") == {
        "a": {1: 10.0, 2: 25.0, 3: 30.0}, "b": {1: 5.0},
    }  # fmt: skip


def test_settings_by_command(tmp_path, capsys):
    settings = ({"beam": 5, "checkpoint": "best"}, {"beam": 10, "checkpoint": "best"},
                {"beam": 10, "checkpoint": "last"})  # fmt: skip
    lines = [
        entry("dg_lstm_btec_3", 1, 10 * n, sacrebleu=10 * n + 1, **more)
        for n, more in enumerate(settings, start=1)
    ]
    path = str(results(tmp_path, *lines))
    for options, score in (
        ([], "30.00"),
        (["--beam", "5"], "10.00"),
        (["--checkpoint", "best"], "20.00"),
        (["--checkpoint", "best", "--metric", "sacrebleu"], "21.00"),
    ):
        assert significance.main([path, *options]) == 0
        assert score in capsys.readouterr().out


def test_one_seed_in_common(tmp_path, capsys):
    path = results(tmp_path, entry("a", 1, 10), entry("a", 2, 11), entry("b", 1, 12))
    assert significance.main([str(path), "--baseline", "a"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "b  12.00  (1 run)  no test: fewer than two seeds in common with a"


def test_an_empty_file(tmp_path):
    for content in ("", "\n"):
        path = results(tmp_path)
        path.write_text(content)
        with pytest.raises(UserError, match=r"results\.jsonl has no results; evaluate the runs"):
            significance.read_results([path], "bleu")


def test_warning_of_mixed_settings(tmp_path, capsys):
    path = results(
        tmp_path,
        entry("a", 1, 1, checkpoint="ema", beam=5),  # replaced by the next line
        entry("a", 1, 10, checkpoint="best", beam=10),
        entry("b", 1, 20, checkpoint="last:5", beam=10),
    )
    assert significance.main([str(path)]) == 0
    assert capsys.readouterr().err == (
        "warning: these results differ in checkpoint (best, last:5); choose one with --checkpoint, "
        "or evaluate all runs with the same one\n"
    )
    assert significance.main([str(path), "--checkpoint", "best"]) == 0
    assert not capsys.readouterr().err
    lines = [entry("a", 1, 10, beam=10), entry("b", 1, 20, beam=2), entry("c", 1, 30)]
    assert significance.main([str(results(tmp_path, *lines))]) == 0
    assert "differ in beam (10, 2); choose one with --beam" in capsys.readouterr().err
    lines = [entry("a", 1, 10, mode="sentences"), entry("b", 1, 20, mode="continuous")]
    path = results(tmp_path, *lines)
    assert significance.main([str(path)]) == 0
    assert "differ in mode (continuous, sentences); choose one" in capsys.readouterr().err
    assert significance.main([str(path), "--mode", "sentences"]) == 0
    assert capsys.readouterr() == ("a  10.00  (1 run)\n", "")


def test_lower_perplexity_is_better(tmp_path, capsys):
    perplexities = ("valid", "test", "valid_with_cache", "test_with_cache")
    lines = [
        {"arch": arch, "seed": seed} | dict.fromkeys((*perplexities, "accuracy"), value)
        for arch, values in (("lstm", (100.0, 101.0, 103.0)), ("cas", (90.0, 92.0, 93.0)))
        for seed, value in enumerate(values, start=1)
    ]
    path = results(tmp_path, *lines)
    found = {}
    for metric in (*perplexities, "accuracy"):
        assert significance.main([str(path), "--baseline", "lstm", "--metric", metric]) == 0
        found[metric] = float(capsys.readouterr().out.split("p = ")[1].split()[0])
    assert found.pop("accuracy") == pytest.approx(1, abs=0.01)
    assert len(set(found.values())) == 1
    assert found["test"] < 0.01
