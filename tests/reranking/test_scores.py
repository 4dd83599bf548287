"""``casrnn rerank score``: the pairs a model is given, and when scores are reused."""

import argparse
import itertools
import math
import os
from types import SimpleNamespace

import pytest

from fairseq_casrnn.evaluation import sentence_scores
from fairseq_casrnn.inference import loading
from fairseq_casrnn.reranking import score
from fairseq_casrnn.reranking.nbest import read_nbest

from .common import rerank, write_nbest

LIST = [("s@@ t u", None, [(-1, "x@@ y z"), (-2, "z")]), ("v w", None, [(-1, "a b@@ c")])]
ONES = [(-1.0, 1)] * 3


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", [("s@@ t u", "x@@ y z"), ("s@@ t u", "z"), ("v w", "a b@@ c")]),
        ("--right-to-left", [("s@@ t u", "z y x@@"), ("s@@ t u", "z"), ("v w", "c b@@ a")]),
        ("--backwards", [("x@@ y z", "s@@ t u"), ("z", "s@@ t u"), ("a b@@ c", "v w")]),
        (
            "--backwards --right-to-left",
            [("x@@ y z", "u t s@@"), ("z", "u t s@@"), ("a b@@ c", "w v")],
        ),
        ("--join-subwords", [("st u", "xy z"), ("st u", "z"), ("v w", "a bc")]),
        ("--join-subwords --right-to-left", [("st u", "z xy"), ("st u", "z"), ("v w", "bc a")]),
        ("--lm", [("", "x@@ y z"), ("", "z"), ("", "a b@@ c")]),
        ("--lm --join-subwords --right-to-left", [("", "z xy"), ("", "z"), ("", "bc a")]),
    ],
)
def test_pairs_that_a_model_is_given(tmp_path, capsys, monkeypatch, flags, expected):
    """--right-to-left reverses what the model predicts, also if this is the source."""
    asked = []
    for name in ("language_model_scorer", "translation_scorer"):
        monkeypatch.setattr(score, name, lambda *_: lambda pairs: asked.extend(pairs) or ONES)
    (tmp_path / "x.pt").touch()
    command = [write_nbest(tmp_path / "list", LIST), "--data", tmp_path, "--output", tmp_path / "s"]
    rerank(capsys, "score", *command, "--path", tmp_path / "x.pt", *flags.split())
    assert asked == expected


def test_a_language_models_score_is_mean_bits_per_token(monkeypatch, tmp_path):
    nats = {"x y": -6 * math.log(2), "z": -5 * math.log(2)}
    task = SimpleNamespace(source_dictionary=None)
    monkeypatch.setattr(loading, "load_language_model", lambda *_: (None, task))
    monkeypatch.setattr(score, "check_known", lambda *_: None)
    monkeypatch.setattr(sentence_scores, "score", lambda model, words, texts: nats)
    found = score.language_model_scorer("x.pt", tmp_path, [])([("", "x y"), ("", "z")])
    assert [tokens for _, tokens in found] == [3, 2]
    assert [value for value, _ in found] == pytest.approx([-2, -2.5])


def test_scores_are_reused_only_for_the_same_call(tmp_path):
    """A change of the list, model, weights, folder or options requires new scores."""
    lists = [write_nbest(tmp_path / name, LIST[:n]) for name, n in (("one", 1), ("two", 2))]
    models = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in models:
        path.write_text("weights")
        os.utime(path, (1000, 1000))
    flags = {"lm": False, "right_to_left": False, "backwards": False, "join_subwords": False}

    def header(paths=models[:1], nbest=lists[0], data="data", **given):
        path = ":".join(map(str, paths))
        args = argparse.Namespace(path=path, data=data, **{**flags, **given})
        return score.header_line(score.describe(args, read_nbest(nbest), list(map(str, paths))))

    found = [header(), header(models[1:]), header(models), header(nbest=lists[1])]
    found += [header(data="other"), *(header(**{name: True}) for name in flags)]
    os.utime(models[0], (2000, 2000))
    found.append(header())
    models[0].write_text("more weights")
    os.utime(models[0], (1000, 1000))
    found.append(header())
    assert all(one != other for one, other in itertools.combinations(found, 2))
    models[0].write_text("weights")
    os.utime(models[0], (1000, 1000))
    assert header() == found[0]


def test_incomplete_files_of_scores(tmp_path):
    header = {"model": "m"}
    lines = [score.header_line(header), "-1.0\t3", "-2.0\t4"]
    path = tmp_path / "scores"
    assert not score.is_complete(path, header, 2)
    for count, given, whole in ((2, header, True), (3, header, False), (2, {"model": "n"}, False)):
        path.write_text("".join(f"{line}\n" for line in lines))
        assert score.is_complete(path, given, count) == whole
