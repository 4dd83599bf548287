"""Evaluation of translation runs: which runs are evaluated, and what is recorded."""

import itertools
import json
import resource
from argparse import Namespace

import pytest

from fairseq_casrnn.console.program import format_os_error
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import evaluate_translation, runs
from fairseq_casrnn.evaluation.significance import read_results


@pytest.fixture
def out(tmp_path):
    for name in ("a/seed1", "a/seed10", "a/seed2", "b/seed2", "c/seed1", "b/other"):
        (tmp_path / name).mkdir(parents=True)
        if not name.startswith("c"):  # c has no checkpoint
            (tmp_path / name / "checkpoint_last.pt").touch()
    return tmp_path


def found(out, archs=(), seeds=()):
    return [(arch, seed) for arch, seed, _ in runs.choose_runs(out, list(archs), list(seeds))]


def test_runs_are_found_by_their_folders(out):
    assert found(out) == [("a", 1), ("a", 2), ("a", 10), ("b", 2)]
    assert found(out, ["b", "a"], [2]) == [("b", 2), ("a", 2)]
    assert found(out, ["a", "a"], [10, 1, 10]) == [("a", 1), ("a", 10)]  # no duplicates
    assert runs.choose_runs(out, ["b"], [])[0][2] == out / "b" / "seed2"


def test_unfinished_runs_are_marked(out, capsys):
    """train.sh marks them as begun; runs made without it are never marked."""
    found(out)
    assert not capsys.readouterr().err
    (out / "a" / "seed2" / "identity").touch()
    found(out, ["a"])
    error = capsys.readouterr().err
    assert error.startswith(f"warning: {out}/a/seed2 was interrupted")
    assert error.count("\n") == 1
    for seed in (1, 2):
        runs.record_result(out, "a", seed, {"bleu": 1.0})
    (out / "a" / "seed2" / "finished").touch()
    found(out)
    assert not capsys.readouterr().err
    runs.record_result(out, "a", 2, {"bleu": 2.0})
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [line.get("finished") for line in lines] == [None, False, None]


def test_a_truncated_line_does_not_affect_the_next(out):
    path = out / "results.jsonl"
    path.write_text('{"arch": "a", "seed": 1, "bl')
    runs.record_result(out, "a", 2, {"bleu": 2.0})
    assert path.read_text().splitlines() == [
        '{"arch": "a", "seed": 1, "bl',
        '{"arch": "a", "seed": 2, "bleu": 2.0}',
    ]


@pytest.mark.parametrize("room", [0, 10])
def test_a_result_that_cannot_be_written_keeps_the_others(out, room):
    """A limit on file sizes takes the place of a full disk."""
    runs.record_result(out, "a", 1, {"bleu": 1.0})
    before = (out / "results.jsonl").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, limits[1]))
    try:
        with pytest.raises(OSError, match=r"too large|No space") as error:
            runs.record_result(out, "a", 2, {"bleu": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert format_os_error(error.value).startswith(f"could not write {out}/results.jsonl (")
    assert (out / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("archs", "seeds", "run"), [(["b"], [1, 2], "b with seed 1"), (["c"], [], "c with seed 1")]
)
def test_a_run_asked_for_must_exist(out, archs, seeds, run):
    with pytest.raises(UserError, match=f"no run of {run}"):
        found(out, archs, seeds)
    with pytest.raises(UserError, match="holds no trained run; train one first"):
        found(out / "nothing")


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("best", r"checkpoint_best\.pt does not exist; give --checkpoint last"),
        ("first", "not 'first'"),
        ("last:0", "last:0"),
    ],
)
def test_a_wrong_choice_of_checkpoint(out, which, message):
    assert runs.choose_checkpoint(out / "a/seed1", "last").name == "checkpoint_last.pt"
    with pytest.raises(UserError, match=message):
        runs.choose_checkpoint(out / "a/seed1", which)


def test_the_folder_must_be_prepared(out, capsys):
    options = ["--data", str(out), "--out", str(out)]
    assert evaluate_translation.main(options) == 2
    assert "is not a prepared folder" in capsys.readouterr().err
    (out / "data-bin").mkdir()
    (out / "data-bin" / "test.zh-en.zh.idx").touch()
    assert evaluate_translation.prepared_languages(out) == ("zh", "en")
    assert evaluate_translation.main([*options, "--beam", "0"]) == 2
    assert "--beam is 0; it must be at least 1" in capsys.readouterr().err
    assert evaluate_translation.main([*options, "--baseline", "c"]) == 2
    assert "--baseline c is not among" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--gen-subset", "valid"], "these are the scores of the test set; drop --gen-subset"),
        (["--num-shards", "2", "--shard-id", "1"], "needs the whole test set; drop --num-shards"),
        (["--lenpen", "1", "--quiet"], "translations that fairseq-generate prints; drop --quiet"),
        (["--prefix-size=2"], "cannot be scored; drop --prefix-size"),
        (["--score-reference"], "the references are not translations; drop --score-reference"),
        (["--beam=2"], "give --beam before --"),
        (["--beam", "2"], "give --beam before --"),
        (["--path", "x.pt"], "drop --path, and choose it with --arch, --seed and --checkpoint"),
    ],
)
def test_options_that_would_falsify_the_record(out, capsys, extra, message):
    (out / "data-bin").mkdir()
    (out / "data-bin" / "test.zh-en.zh.idx").touch()
    assert evaluate_translation.main(["--data", str(out), "--out", str(out), "--", *extra]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_results_with_further_options_are_marked(out, monkeypatch):
    """Translations and scores with options do not replace those without options."""
    written = []
    monkeypatch.setattr(evaluate_translation, "prepared_languages", lambda data: ("zh", "en"))
    monkeypatch.setattr(evaluate_translation, "generate", lambda *args: written.append(args[2]))
    monkeypatch.setattr(
        evaluate_translation,
        "score_generated",
        lambda *args: {"bleu": float(len(written)), "sentences": 1},
    )
    predicted = []
    monkeypatch.setattr(
        evaluate_translation, "write_translations", lambda *args: predicted.append(args[2])
    )
    results = [
        evaluate_translation.evaluate(
            out / "a/seed1", Namespace(data=out, checkpoint="last", beam=10, extra=extra)
        )
        for extra in ([], ["--lenpen", "0"], ["--lenpen", "2"])
    ]
    assert predicted == written[:1]
    assert [result.get("options") for result in results] == [None, "--lenpen 0", "--lenpen 2"]
    assert len(set(written)) == 3
    for result in results:
        runs.record_result(out, "a", 1, result)
    assert read_results([out / "results.jsonl"], "bleu") == {"a": {1: 1.0}}


def test_generation_command(tmp_path, monkeypatch):
    """The test set is translated with the recorded beam, and subword units are joined."""
    asked, seconds = [], []

    def generated(command, file):
        asked.append(command)
        file.write("H-0\t-1\tx\n")
        return f"Translated 1,200 sentences (15,000 tokens) in {seconds[-1]}s (1.00 sentences/s)"

    monkeypatch.setattr(evaluate_translation, "_run_generate", generated)
    where = (tmp_path, tmp_path / "x.pt", tmp_path / "generated", 7, ["--lenpen", "2"])
    for time, speed in ((8.0, 150), (0.0, None)):
        seconds.append(time)
        assert evaluate_translation.generate(*where) == speed
    assert (tmp_path / "generated").read_text() == "H-0\t-1\tx\n"
    for name in ("data-bin", "text"):
        (tmp_path / name).mkdir()
    (tmp_path / "text" / "bpe.codes").touch()
    evaluate_translation.generate(*where)
    of_words, _, of_units = asked
    for option, value in (
        ("--beam", "7"), ("--gen-subset", "test"), ("--lenpen", "2"),
        ("--max-source-positions", "100000"), ("--max-target-positions", "100000"),
    ):  # fmt: skip
        assert of_words[of_words.index(option) + 1] == value
    assert of_words[0] == str(tmp_path / "data-bin")
    assert of_words[of_words.index("--path") + 1] == str(tmp_path / "x.pt")
    assert [part for part in of_units if part not in of_words] == ["--post-process", "subword_nmt"]


def test_a_sentence_that_is_too_long_for_the_model(tmp_path, monkeypatch):
    """A sentence cannot be skipped, since scores are for the whole test set."""
    code = """def refuse(*args):
        raise Exception("Size of sample #21 is invalid (=(2, 15)) since max_positions=(9, 9), skip")
    """
    there = {"__name__": "fairseq_cli.generate"}  # errors of other code are not explained
    exec(code, there)
    monkeypatch.setattr("fairseq_cli.generate._main", there["refuse"])
    with pytest.raises(UserError, match=r"^sentence 22 has 2 and 15 .*; split it, or train with "):
        evaluate_translation.generate(tmp_path, tmp_path / "x.pt", tmp_path / "generated", 7, [])


def test_scores_are_of_the_target_side(out, monkeypatch, capsys):
    (out / "data-bin").mkdir()
    (out / "data-bin" / "test.xx-yy.xx.idx").touch()
    (out / "text").mkdir()
    (out / "text" / "test.tok.xx").write_text("e f g h\n")
    (out / "text" / "test.tok.yy").write_text("a b c d\n")

    def generated(data, checkpoint, output, beam, extra):
        assert output == out / "a/seed1" / "generated.checkpoint_last.beam4.txt"
        output.write_text("H-0\t-1\ta b c d\n")
        return 12.34

    monkeypatch.setattr(evaluate_translation, "generate", generated)
    args = Namespace(data=out, checkpoint="last", beam=4, extra=[])
    result = evaluate_translation.evaluate(out / "a/seed1", args)
    assert result == {
        "checkpoint": "last", "subset": "test", "beam": 4, "bleu": 100, "sentences": 1,
        "sentences_per_second": 12.3,
    }  # fmt: skip
    assert capsys.readouterr().out == "a seed 1: BLEU 100.00 (tokenised) on 1 sentences\n"
    assert not list(out.rglob("test.predictions.tsv"))  # there is no original text


def test_translations_against_those_of_a_baseline(out, monkeypatch, capsys):
    """Predictions include the raw text, and both systems are compared on the same sentences."""
    (out / "data-bin").mkdir()
    (out / "data-bin" / "test.xx-yy.xx.idx").touch()
    (out / "text").mkdir()
    lines = [f"Word {n} of the text." for n in range(20)]
    for code, kind in itertools.product(("xx", "yy"), ("tok", "raw")):
        (out / "text" / f"test.{kind}.{code}").write_text("\n".join(lines) + "\n")

    def generated(data, checkpoint, output, beam, extra):
        wrong = " and" if output.parent.parent.name == "b" else ""
        output.write_text("".join(f"H-{n}\t-1\t{line[:-1]}{wrong} .\n"
                                  for n, line in enumerate(lines)))  # fmt: skip

    monkeypatch.setattr(evaluate_translation, "generate", generated)
    options = ["--data", str(out), "--out", str(out), "--seed", "2", "--checkpoint", "last"]
    assert evaluate_translation.main([*options, "--baseline", "b"]) == 0
    *_, better, last = capsys.readouterr().out.splitlines()
    assert better.startswith("a  ")
    assert (
        last
        == "a against b, seed 2: p = 0.0001 (sacreBLEU, approximate randomization of sentences, "
        "two-sided)"
    )
    found = (out / "b/seed2/test.predictions.tsv").read_text().splitlines()
    assert found[0] == "source\treference\ttranslation"
    assert found[4] == "\t".join([lines[3], lines[3], "Word 3 of the text and."])
    # with other options, the predictions are still those of the evaluation before
    assert evaluate_translation.main([*options, "--baseline", "b", "--", "--lenpen", "2"]) == 0
    assert "randomization" not in capsys.readouterr().out


def test_errors_from_fairseq(out, capsys):
    (out / "data-bin").mkdir()
    for name in ("test.zh-en.zh.idx", "dict.zh.txt", "dict.en.txt"):
        (out / "data-bin" / name).touch()
    run = out / "b" / "seed2"
    (run / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    options = ["--data", str(out), "--out", str(out), "--arch", "b", "--checkpoint", "last"]
    assert evaluate_translation.main([*options, "--", "--bogus", "3"]) == 2
    assert capsys.readouterr().err == (
        "error: fairseq-generate: unrecognized arguments: --bogus 3\n"
    )
    assert evaluate_translation.main(options) == 2
    error = capsys.readouterr().err
    assert "checkpoint_last.pt" in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert [path.name for path in run.iterdir()] == ["checkpoint_last.pt"]
    assert not (out / "results.jsonl").exists()
