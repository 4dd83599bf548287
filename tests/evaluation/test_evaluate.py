import json

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import evaluate
from fairseq_casrnn.evaluation.significance import read_results


@pytest.fixture
def out(tmp_path):
    for name in ("a/seed1", "a/seed10", "a/seed2", "b/seed2", "c/seed1", "b/other"):
        (tmp_path / name).mkdir(parents=True)
        if not name.startswith("c"):  # c has no checkpoint yet
            (tmp_path / name / "checkpoint_last.pt").touch()
    return tmp_path


def found(out, archs=(), seeds=()):
    return [(arch, seed) for arch, seed, _ in evaluate.find_runs(out, list(archs), list(seeds))]


def test_runs_are_found_by_their_folders(out):
    assert found(out) == [("a", 1), ("a", 2), ("a", 10), ("b", 2)]
    assert found(out, ["b", "a"], [2]) == [("b", 2), ("a", 2)]
    assert found(out, ["a", "a"], [10, 1, 10]) == [("a", 1), ("a", 10)]  # once each
    assert evaluate.find_runs(out, ["b"], [])[0][2] == out / "b" / "seed2"


def test_unfinished_runs_are_marked(out, capsys):
    """What train.sh began and did not end; a run made without it is nobody's business."""
    found(out)
    assert not capsys.readouterr().err
    (out / "a" / "seed2" / "identity").touch()
    found(out, ["a"])
    error = capsys.readouterr().err
    assert error.startswith(f"warning: {out}/a/seed2 was interrupted")
    assert error.count("\n") == 1
    for seed in (1, 2):
        evaluate.record(out, "a", seed, {"bleu": 1.0})
    (out / "a" / "seed2" / "finished").touch()
    found(out)
    assert not capsys.readouterr().err
    evaluate.record(out, "a", 2, {"bleu": 2.0})
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [line.get("finished") for line in lines] == [None, False, None]


@pytest.mark.parametrize(
    ("archs", "seeds", "run"), [(["b"], [1, 2], "b with seed 1"), (["c"], [], "c with seed 1")]
)
def test_a_run_asked_for_must_exist(out, archs, seeds, run):
    with pytest.raises(UserError, match=f"no run of {run}"):
        found(out, archs, seeds)
    with pytest.raises(UserError, match=r"holds no trained run; run train\.sh"):
        found(out / "nothing")


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("best", r"checkpoint_best\.pt does not exist"),
        ("first", "not 'first'"),
        ("last:0", "last:0"),
    ],
)
def test_a_wrong_choice_of_checkpoint(out, which, message):
    assert evaluate.choose_checkpoint(out / "a/seed1", "last").name == "checkpoint_last.pt"
    with pytest.raises(UserError, match=message):
        evaluate.choose_checkpoint(out / "a/seed1", which)


def test_the_folder_must_be_prepared(out, capsys):
    options = ["--data", str(out), "--out", str(out)]
    assert evaluate.main(options) == 2
    assert "is not a prepared folder" in capsys.readouterr().err
    (out / "data-bin").mkdir()
    (out / "data-bin" / "test.zh-en.zh.idx").touch()
    assert evaluate.languages(out) == ("zh", "en")
    assert evaluate.main([*options, "--beam", "0"]) == 2
    assert "--beam must be at least 1" in capsys.readouterr().err
    assert evaluate.main([*options, "--baseline", "c"]) == 2
    assert "--baseline c is not among" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--gen-subset", "valid"], "these are the scores of the test set; drop --gen-subset"),
        (["--num-shards", "2", "--shard-id", "1"], "has no score of its own; drop --num-shards"),
        (["--lenpen", "1", "--quiet"], "scored as fairseq-generate prints them; drop --quiet"),
        (["--prefix-size=2"], "have no score of their own; drop --prefix-size"),
        (["--score-reference"], "the references are not translations; drop --score-reference"),
        (["--beam=2"], "give --beam before --"),
        (["--beam", "2"], "give --beam before --"),
        (["--path", "x.pt"], "drop --path, and choose with --arch, --seed and --checkpoint"),
    ],
)
def test_options_that_would_make_the_record_wrong(out, capsys, extra, message):
    (out / "data-bin").mkdir()
    (out / "data-bin" / "test.zh-en.zh.idx").touch()
    assert evaluate.main(["--data", str(out), "--out", str(out), "--", *extra]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_results_with_further_options_are_marked(out, monkeypatch):
    """Their translations do not replace the others, nor does their score."""
    written = []
    monkeypatch.setattr(evaluate, "languages", lambda data: ("zh", "en"))
    monkeypatch.setattr(evaluate, "generate", lambda *args: written.append(args[2]))
    monkeypatch.setattr(evaluate, "score_generated", lambda *args: {"bleu": float(len(written))})
    results = [
        evaluate.evaluate(out, out / "a/seed1", "last", 10, extra)
        for extra in (None, ["--lenpen", "0"], ["--lenpen", "2"])
    ]
    assert [result.get("options") for result in results] == [None, "--lenpen 0", "--lenpen 2"]
    assert len(set(written)) == 3
    for result in results:
        evaluate.record(out, "a", 1, result)
    assert read_results([out / "results.jsonl"], "bleu") == {"a": {1: 1.0}}


def test_mistakes_that_fairseq_finds(out, capsys):
    (out / "data-bin").mkdir()
    for name in ("test.zh-en.zh.idx", "dict.zh.txt", "dict.en.txt"):
        (out / "data-bin" / name).touch()
    run = out / "b" / "seed2"
    (run / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    options = ["--data", str(out), "--out", str(out), "--arch", "b", "--checkpoint", "last"]
    assert evaluate.main([*options, "--", "--bogus", "3"]) == 2
    assert capsys.readouterr().err == (
        "error: fairseq-generate: unrecognized arguments: --bogus 3\n"
    )
    assert evaluate.main(options) == 2
    error = capsys.readouterr().err
    assert "checkpoint_last.pt" in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert [path.name for path in run.iterdir()] == ["checkpoint_last.pt"]
    assert not (out / "results.jsonl").exists()
