"""``casrnn rerank tune`` and ``apply`` on small lists."""

import argparse
import json

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.reranking import problem, tune
from fairseq_casrnn.reranking.nbest import header_line, join_subwords, read_nbest, read_scores

from .common import rerank, write_nbest

LIST = [
    ("x y", "the cat sat down", [(-0.5, "a c@@ at sat down"), (-0.75, "the c@@ at sat down")]),
    ("z", "a dog ran home now", [(-0.25, "a dog ran home n@@ ow"), (-1.5, "dog"), (-2, "")]),
]


@pytest.fixture
def nbest(tmp_path):
    return write_nbest(tmp_path / "list", LIST)


def scores(path, source, lines, **header):
    head = [header_line({"nbest": read_nbest(source).digest, **header})] if header else []
    path.write_text("\n".join([*head, *lines]) + "\n")
    return path


def options(nbest, *files, reference=None):
    return argparse.Namespace(nbest=nbest, scores=list(files), reference=reference)


def test_reading(nbest):
    found = read_nbest(nbest)
    assert found.hypotheses == [[text for _, text in hypotheses] for *_, hypotheses in LIST]
    assert found.scores == [[-0.5, -0.75], [-0.25, -1.5, -2.0]]
    assert found.pairs()[1] == ("x y", "the c@@ at sat down")
    assert found.reference_lines() == ["the cat sat down", "a dog ran home now"]
    assert join_subwords("a@@ b c@@ d e@@") == "ab cd e"


def test_digest_of_a_list(nbest):
    """The digest does not depend on the references, which do not affect scores."""
    before, text = read_nbest(nbest).digest, nbest.read_text()
    for old, new, same in (
        ("T-0\tthe", "T-0\ta", True), ("S-0\tx", "S-0\tz", False), ("\tdog", "\tcat", False)
    ):  # fmt: skip
        nbest.write_text(text.replace(old, new))
        assert (read_nbest(nbest).digest == before) == same


@pytest.mark.parametrize(("sums", "factor"), [(False, [1] * 5), (True, [6, 6, 7, 2, 1])])
def test_features_by_hand(tmp_path, nbest, sums, factor):
    lines = ["-1\t6", "-2\t6", "-3\t7", "-4\t2", "-5\t1"]
    file = scores(tmp_path / "s", nbest, lines, model="m")
    other = scores(tmp_path / "o", nbest, "12345")  # a file of another program, with scores alone
    found = problem.load(options(nbest, file, other), True, sums, needs_references=True)
    one = np.multiply([-1, -2, -3, -4, -5], factor)
    expected = np.zeros((2, 3, 4))
    expected[0, :2] = [[-0.5, one[0], 1, 4], [-0.75, one[1], 2, 4]]
    expected[1] = [[-0.25, one[2], 3, 5], [-1.5, one[3], 4, 1], [-2, one[4], 5, 0]]
    np.testing.assert_array_equal(found.lists.features, expected)
    assert found.lists.mask.tolist() == [[True, True, False], [True, True, True]]
    assert found.models == ["m", ""]
    assert found.chosen(found.baseline) == ["a cat sat down", "a dog ran home now"]


def big(tmp_path, name, sentences=40, references=True):
    """A list whose own score is wrong in half of the sentences, and a file of correct scores."""
    rows, right = [], []
    for n in range(sentences):
        good, bad = f"w{n} a b c d", f"w{n} a c b d e"
        texts = [good, bad] if n % 2 else [bad, good]
        rows.append(("s", good if references else None, [(-0.1, texts[0]), (-0.2, texts[1])]))
        right += [f"{-1 - (text == bad)}\t6" for text in texts]
    nbest = write_nbest(tmp_path / name, rows)
    return nbest, scores(tmp_path / f"{name}.scores", nbest, right, model="right")


def test_tune_and_apply(tmp_path, capsys):
    valid, file = big(tmp_path, "valid")
    weights, out = tmp_path / "w.json", tmp_path / "out"
    command = ["--nbest", valid, "--scores", file, "--output", weights, "--runs", 2]
    printed = rerank(capsys, "tune", *command, "--restarts", 2).splitlines()
    content = json.loads(weights.read_text())
    assert printed[0] == (
        f"BLEU {content['baseline']:.2f}, reranked 100.00 ± 0.00 (2 runs), oracle 100.00"
    )
    assert content["baseline"] < 70
    assert [run["seed"] for run in content["runs"]] == [1, 2]

    test, file = big(tmp_path, "test", 30)
    command = ["--nbest", test, "--scores", file, "--weights", weights, "--output", out]
    printed = rerank(capsys, "apply", *command, "--json", tmp_path / "report").splitlines()
    assert read_lines(out) == [f"w{n} a b c d" for n in range(30)]
    report = json.loads((tmp_path / "report").read_text())
    before = [hypotheses[0] for hypotheses in read_nbest(test).hypotheses]
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    assert report["baseline"] == pytest.approx(metric.corpus_score(before, [read_lines(out)]).score)
    assert (report["reranked"], report["oracle"]) == ([pytest.approx(100)] * 2, 100)
    assert report["p"] < 0.01
    assert printed[1].startswith("p = 0.00")


def test_sums_of_subwords(tmp_path, capsys):
    """Means prefer wrong hypotheses in half of the sentences; apply sums if tune did."""
    rows, lines = [], []
    for n in range(20):
        good, bad = f"w{n} a b c@@ d e", f"w{n} b a c@@ d e"
        pair = [(good, "-1\t2"), (bad, "-2\t3")] if n % 2 else [(good, "-2\t2"), (bad, "-1\t9")]
        pair = pair if n % 4 < 2 else pair[::-1]
        rows.append(("s", good, [(-1, text) for text, _ in pair]))
        lines += [line for _, line in pair]
    nbest = write_nbest(tmp_path / "list", rows)
    files = ["--nbest", nbest, "--scores", scores(tmp_path / "s", nbest, lines, model="m")]
    weights, out = tmp_path / "w.json", tmp_path / "out"
    command = ["tune", *files, "--join-subwords", "--output", weights]
    assert "reranked 100.00" not in rerank(capsys, *command)
    assert "reranked 100.00" in rerank(capsys, *command, "--sums")
    printed = rerank(capsys, "apply", *files, "--weights", weights, "--output", out)
    assert "reranked 100.00" in printed
    assert read_lines(out) == [f"w{n} a b cd e" for n in range(20)]


def test_several_runs(tmp_path, capsys, monkeypatch):
    """Mean and sample deviation are printed, and the weights of the best run."""
    valid, file = big(tmp_path, "valid")
    asked = []

    def tuned(lists, baseline, restarts, seed):
        asked.append((restarts, seed))
        return np.array([0.25, seed / 10, -0.5]), {5: 10.0, 6: 40.0, 7: 25.0}[seed]

    monkeypatch.setattr(tune, "tune", tuned)
    command = ["--nbest", valid, "--scores", file, "--output", tmp_path / "w.json"]
    printed = rerank(capsys, "tune", *command, "--runs", 3, "--seed", 5, "--restarts", 4)
    first, *names = printed.splitlines()
    assert "reranked 25.00 ± 15.00 (3 runs), oracle 100.00" in first
    assert names == ["  0.2500  score of the list", f"  0.6000  {file}", " -0.5000  length"]
    assert asked == [(4, 5), (4, 6), (4, 7)]


def test_without_references(tmp_path, capsys):
    valid, file = big(tmp_path, "valid", references=False)
    weights, out = tmp_path / "w.json", tmp_path / "out"
    command = ["tune", "--nbest", valid, "--scores", file, "--output", weights]
    assert "has no reference of sentence 0 (T-0)" in rerank(capsys, *command, status=2)
    (tmp_path / "ref").write_text("".join(f"w{n} a b c d\n" for n in range(40)))
    rerank(capsys, *command, "--reference", tmp_path / "ref")
    command = ["--nbest", valid, "--scores", file, "--weights", weights, "--output", out]
    error = rerank(capsys, "apply", *command, "--json", tmp_path / "json", status=2)
    assert f"--json needs references for BLEU, but {valid} has none; give --reference" in error
    assert not out.exists()
    assert rerank(capsys, "apply", *command) == ""
    assert out.read_text() == (tmp_path / "ref").read_text()


def test_apply_uses_the_run_that_is_best_on_validation(tmp_path, capsys):
    test, file = big(tmp_path, "test", 30)
    runs = [
        {"seed": seed, "bleu": bleu, "weights": weights}
        for seed, (bleu, weights) in enumerate([(40, [1, 0, 0]), (90, [0, 1, 0]), (50, [0, -1, 0])])
    ]
    tuned = {"join_subwords": False, "sums": False, "models": ["right"], "runs": runs}
    (tmp_path / "w.json").write_text(json.dumps(tuned))
    command = ["--nbest", test, "--scores", file, "--output", tmp_path / "out"]
    printed = rerank(capsys, "apply", *command, "--weights", tmp_path / "w.json")
    assert read_lines(tmp_path / "out") == [f"w{n} a b c d" for n in range(30)]
    # the first run's weights would change nothing
    assert printed.splitlines()[1].startswith("p = 0.00")
    assert printed.splitlines()[1].endswith("best on validation, BLEU 100.00)")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("H-0\t-0.5\ta", "H-0 -0.5 a"), "list, line 4 is malformed; it should be H-NUMBER"),
        (("H-0\t-0.5\ta", "H-0\thigh\ta"), "line 4: the score 'high' is not a number of magnitude"),
        (("H-0\t-0.5\ta", "H-0\tnan\ta"), "line 4: the score 'nan' is not a number of magnitude"),
        (("H-0\t-0.5\ta", "H-²\t-0.5\ta"), "line 4 is malformed; it should be H-NUMBER"),
        (("H-0\t-0.5\ta", f"H-{'9' * 5000}\t-0.5\ta"), "line 4 is malformed; it should be H-NUM"),
        (("H-0\t-0.5\ta", "H-999999999\t-0.5\ta"), "no hypothesis of sentence 2 but of a later"),
        (
            ("H-0\t-0.5\ta", f"H-0\t{'9' * 5000}\ta"),
            r"the score '9{60}…' \(5000 characters\) is not a n",
        ),
        (("S-1\tz", "S-1"), "line 10 is malformed; it should be S-NUMBER<TAB>SOURCE"),
        (("S-1\tz", "S-0\tz"), "line 10 repeats S-0"),
        (("H-0", "D-0"), "no hypothesis of sentence 0 but of a later one"),
        (("H-1", "D-1"), "ends before the hypotheses of sentence 1"),
        (("H-", "D-"), "has no hypothesis"),
    ],
)
def test_malformed_lists(nbest, change, message):
    nbest.write_text(nbest.read_text().replace(*change))
    with pytest.raises(UserError, match=message):
        read_nbest(nbest)


@pytest.mark.parametrize(
    ("lines", "header", "message"),
    [
        ("1234", {}, "s has 4 scores but .*list has 5 hypotheses"),
        (["1", "2", "x", "4", "5"], {}, "s, line 3: the score 'x' is not a number of magnitude"),
        (["1\tx", "2", "3", "4", "5"], {}, "line 1 is malformed; it should be SCORE<TAB>TOKENS"),
        ("12345", {"nbest": "other"}, "has the scores of another list"),
        (["1\t²", "2", "3", "4", "5"], {}, "line 1 is malformed; it should be SCORE<TAB>TOKENS"),
        (["1\t" + "9" * 5000, *"2345"], {}, "line 1 is malformed; it should be SCORE<TAB>TOKENS"),
        (
            ["1e300", *"2345"],
            {},
            r"line 1: the score '1e300' is not a number of magnitude below 1e\+30",
        ),
        (["#x", "1"], {}, "line 1 is not a JSON object"),
        (["#" + "[" * 10**5, "1"], {}, "line 1 is not a JSON object"),
    ],
)
def test_malformed_scores(tmp_path, nbest, lines, header, message):
    file = scores(tmp_path / "s", nbest, lines, **header)
    with pytest.raises(UserError, match=message):
        read_scores(file, read_nbest(nbest))


def test_scores_of_other_programs_need_a_sorted_list(tmp_path, nbest):
    """fairseq-generate prints such lists; scores of other programs do not fit them."""
    lines = nbest.read_text().splitlines(keepends=True)
    nbest.write_text("".join(sorted(lines, key=lambda line: "-1\t" not in line)))
    found = read_nbest(nbest)
    assert found.hypotheses == [[text for _, text in hypotheses] for *_, hypotheses in LIST]
    with pytest.raises(UserError, match=r"list are not in the order of their numbers, so"):
        read_scores(scores(tmp_path / "s", nbest, "12345"), found)
    own = scores(tmp_path / "own", nbest, "12345", model="m")  # by casrnn rerank score
    assert read_scores(own, found).scores == [1, 2, 3, 4, 5]


def test_files_that_cannot_be_written(tmp_path, nbest, monkeypatch, capsys):
    """The error comes before the work."""
    monkeypatch.setattr(tune, "tune", None)
    file = scores(tmp_path / "s", nbest, "12345")
    command = ["tune", "--nbest", nbest, "--scores", file, "--output", "/no/where"]
    assert "cannot write /no/where" in rerank(capsys, *command, status=2)


def test_inconsistent_files(tmp_path, nbest, capsys):
    valid, file = big(tmp_path, "valid")
    weights, out = tmp_path / "w.json", tmp_path / "out"
    rerank(capsys, "tune", "--nbest", valid, "--scores", file, "--output", weights)
    command = ["apply", "--nbest", valid, "--weights", weights, "--output", out, "--scores"]
    error = rerank(capsys, *command, file, file, status=2)
    assert "has weights for 1 files of scores, but --scores names 2" in error
    lines = file.read_text().splitlines()[1:]
    other = scores(tmp_path / "other", valid, lines, model="other")
    error = rerank(capsys, *command, other, status=2)
    assert "has the scores of other, but" in error
    assert "tuned with those of right in its place" in error
    content = json.loads(weights.read_text())
    wrong = [{"runs": [3]}, content | {"models": []}, content | {"models": None}]
    wrong += [
        content | {"runs": [{"weights": [0, 1, 2], "bleu": number}]} for number in (10**400, "1")
    ]
    for text in [*map(json.dumps, wrong), "[" * 10**5, "9" * 5000]:
        weights.write_text(text)
        assert "is not a file of weights" in rerank(capsys, *command, file, status=2)
    assert not out.exists()

    command = ["tune", "--output", weights, "--nbest"]
    assert "tune with --join-subwords" in rerank(capsys, *command, nbest, status=2)
    (tmp_path / "ref").write_text("one\n")
    command += [nbest, "--join-subwords", "--reference", tmp_path / "ref"]
    assert "ref has 1 lines but" in rerank(capsys, *command, status=2)
    (tmp_path / "ref").write_text("the c@@ at sat down\na dog\n")
    assert "ref has BPE units, but BLEU needs words" in rerank(capsys, *command, status=2)
    assert "--runs is 0; it must be at least 1" in rerank(capsys, *command, "--runs", 0, status=2)
