"""Dyck languages: the probabilistic grammar, the generated files, the measures."""

import itertools
import json
import math
import random
import re
from collections import Counter

import numpy as np
import pytest
import torch
from command_lines.programs import fairseq
from fairseq.data import Dictionary
from fairseq.logging import metrics

from fairseq_casrnn import cli
from fairseq_casrnn.criterions.dyck import DyckCrossEntropy
from fairseq_casrnn.data.corpora.dyck import draw
from fairseq_casrnn.data.corpora.dyck_source import Source, brackets
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.brackets import closing_tokens, count_right, distances, worst


def all_strings(k, m, low, high):
    """Enumerate all strings with their probabilities before the restriction of lengths."""
    pairs = dict(brackets(k))
    found = {}

    def extend(tokens, stack, probability):
        if len(tokens) >= high:
            return
        share = 0.5 / k if len(stack) < m else 0
        if not stack and low <= len(tokens) + 1:
            found[" ".join(tokens)] = probability * 0.5
        if stack:
            close = 0.5 if len(stack) < m else 1.0
            extend([*tokens, stack[-1]], stack[:-1], probability * close)
        for left, right in pairs.items():
            if share:
                extend([*tokens, left], [*stack, right], probability * share)

    extend([], [], 1.0)
    return found


@pytest.mark.parametrize(("k", "m", "low", "high"), [(2, 2, 1, 9), (1, 3, 5, 9), (3, 1, 4, 7)])
def test_measures_equal_those_of_enumeration(k, m, low, high):
    """Probabilities, entropy and expected length equal those of a list of all strings."""
    strings, source = all_strings(k, m, low, high), Source(k, m, low, high)
    total = sum(strings.values())
    assert source.log_total == pytest.approx(math.log(total))
    entropy = length = 0.0
    for text, probability in strings.items():
        share = probability / total
        assert source.log_prob(text.split()) == pytest.approx(math.log(share))
        entropy -= share * math.log(share)
        length += share * (len(text.split()) + 1)
    assert source.entropy() == pytest.approx((entropy, length))
    assert source.floor() == pytest.approx(math.exp(entropy / length))


@pytest.mark.parametrize(("m", "floor"), [(4, 2.520), (6, 2.611), (8, 2.661)])
def test_floor_without_a_length_limit(m, floor):
    """The entropy is 3/2 bits except at depth m, where the walk spends 1/(2m+1) of the time."""
    source = Source(2, m, 1, 6000)
    assert source.floor() == pytest.approx(2 ** (1.5 * 2 * m / (2 * m + 1)), rel=1e-9)
    assert source.floor() == pytest.approx(floor, abs=5e-4)
    assert source.entropy()[1] == pytest.approx(2 * m + 1)


def test_improbable_long_strings():
    """With depth 1 and one kind, the string of n pairs is unique and has probability 2^-(n+1)."""
    for pairs in (1000, 20_000):  # such probabilities underflow with 20,000 pairs
        source = Source(1, 1, 2 * pairs + 1, 2 * pairs + 3)
        expected = math.log(1.5) - (pairs + 1) * math.log(2)
        assert source.log_total == pytest.approx(expected, rel=1e-12)
        assert source.log_prob(["(a", "a)"] * pairs) == pytest.approx(math.log(2 / 3))
        mean = (2 * pairs + 1) * 2 / 3 + (2 * pairs + 3) / 3
        assert source.entropy()[1] == pytest.approx(mean)


def test_samples_have_the_distribution():
    source, count = Source(2, 2, 3, 7), 20000
    rng = random.Random(1)
    found = Counter(" ".join(source.sample(rng)) for _ in range(count))
    strings = all_strings(2, 2, 3, 7)
    total = sum(strings.values())
    assert found.keys() == strings.keys()
    chi2 = sum(
        (found[text] - count * p / total) ** 2 / (count * p / total) for text, p in strings.items()
    )
    assert abs(chi2 - (len(strings) - 1)) < 5 * math.sqrt(2 * len(strings))


def test_draws_are_seeded_and_disjoint(capsys):
    source = Source(2, 3, 1, 11)

    def splits(seed):
        taken = set()
        first = [" ".join(s) for s in draw(source, 50, f"{seed} a", taken)]
        return first, [" ".join(s) for s in draw(source, 50, f"{seed} b", taken)]

    first, second = splits(1)
    assert not set(first) & set(second)
    assert len(set(first)) < 50  # short strings occur several times
    assert splits(1) == (first, second) != splits(2)
    assert "drawn again because they occurred before" in capsys.readouterr().out
    unique = [" ".join(s) for s in draw(source, 50, "1", set(), unique=True)]
    assert len(set(unique)) == 50


@pytest.mark.parametrize(
    "text", ["(a", "a)", "(a b)", "(a a) (a a)", "(a (a (a a) a) a)", "", "(c c)", "(a a) a)"]
)
def test_invalid_strings(text):
    """There are only two strings of depth 2 and length 3."""
    source = Source(2, 2, 3, 3)
    assert source.log_prob(["(a", "a)"]) == pytest.approx(math.log(0.5))
    with pytest.raises(UserError, match="the source cannot emit"):
        source.log_prob(text.split())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("dyck")
    sizes = ["--train", "60", "--valid", "20", "--test", "20", "--lengths", "9:30"]
    assert cli.main(["data", "dyck", "--m", "3", "--out", str(out), *sizes]) == 0
    return out


def test_files(data, capsys):
    notes = json.loads((data / "text" / "dyck.json").read_text())
    seen = set()
    for split, size, low, high in (
        ("train", 60, 9, 30),
        ("valid", 20, 9, 30),
        ("test", 20, 9, 30),
        ("test1", 20, 31, 90),
    ):
        lines = (data / "text" / f"{split}.txt").read_text().splitlines()
        assert len(lines) == size
        assert all(low <= len(line.split()) + 1 <= high for line in lines)
        assert not seen & set(lines)
        seen |= set(lines)
        about = notes["splits"][split]
        assert about["lengths"] == [low, high]
        assert about["floor"] == pytest.approx(Source(2, 3, low, high).floor())
        assert (data / "data-bin" / f"{split}.bin").exists()
    assert len((data / "data-bin" / "dict.txt").read_text().splitlines()) == 4
    assert cli.main(["data", "dyck", "--out", str(data), "--m", "5"]) == 2
    assert "was prepared with --m 3, not 5; give another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--m", "0"], "--m is 0; it must be at least 1"),
        (["--lengths", "9:8"], "lengths 9:8 are not a range"),
        (["--lengths", "4:4"], "no string has a length from 4 to 4"),
        (["--test", "0"], "--test is 0"),
        (["--lengths", "1:3"], "too few different strings have lengths 1:3"),
        (["--lengths", "5:9", "--long-lengths", "9:20"], "--long-lengths begins at 9; it must be"),
        (
            ["--k", "100", "--lengths", "5:20", "--train", "5"],
            "of 100 bracket types occur in train, and the others would be unknown",
        ),
    ],
)
def test_wrong_options(tmp_path, capsys, options, message):
    assert cli.main(["data", "dyck", "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    assert cli.main(["data", "dyck", "--out", str(tmp_path / "out"), *options]) == 2
    assert not list((tmp_path / "out").iterdir())  # existing files are kept


def dictionary():
    words = Dictionary()
    for token in itertools.chain(*brackets(2)):
        words.add_symbol(token)
    return words


def test_closing_distances_and_correct_predictions():
    """(a (b b) a) closes at distances 1 and 3, and (b b) at distance 1."""
    words = dictionary()
    closing = closing_tokens(words)
    a, a_, b, b_ = (words.index(token) for token in itertools.chain(*brackets(2)))
    assert closing == {a_: a, b_: b}
    targets = torch.tensor([[a, b, b_, a_, 2], [b, b_, 2, 1, 1]])
    assert distances(targets, closing).tolist() == [[0, 0, 1, 3, 0], [0, 1, 0, 0, 0]]
    # the remaining probability, which is not for brackets
    share = torch.full((2, 5, len(words)), 0.01)
    share[0, 2, b_], share[0, 2, a_] = 0.08, 0.02  # 0.8 of that on closing brackets
    share[0, 3, a_], share[0, 3, b_] = 0.07, 0.02
    share[1, 1, b_], share[1, 1, a_] = 0.02, 0.08
    share[0, 2, 2], share[1, 1, a] = 0.8, 0.5
    right, seen = count_right((share * 1.001).log(), targets, closing)
    assert (right.tolist(), seen.tolist()) == ([0, 1, 0, 0], [0, 2, 0, 1])
    assert worst(right, seen) == (0.0, 3)
    assert worst(np.array([0, 1, 0, 1]), seen) == (0.5, 1)
    words.add_symbol("c")
    with pytest.raises(UserError, match="has other tokens than pairs of brackets"):
        closing_tokens(words)


@pytest.mark.full
def test_training_logs_wcpa_and_analysis_agrees(data, tmp_path, capsys):
    """Training logs the WCPA that casrnn analyze dyck finds, also after resuming."""
    options = ["--task", "stateful_language_modeling", "--sentence-reset", "--cpu"]
    options += ["--criterion", "dyck_cross_entropy", "--arch", "second_order_lstm_lm_dyck"]
    options += ["--batch-size", "7", "--optimizer", "adam", "--lr", "0.03", "--num-workers", "0"]
    options += ["--log-format", "json", "--save-dir", tmp_path, "--temperature-decay", "0.9"]
    fairseq("train", data / "data-bin", *options, "--max-epoch", 2)
    done = fairseq("train", data / "data-bin", *options, "--max-epoch", 25)
    valid = done.records("valid_wcpa")[-1]
    assert [r["train_temperature"] for r in done.records("train_temperature")][:2] == [
        "0.81",
        "0.729",
    ]
    arguments = ["analyze", "dyck", data, "--path", tmp_path / "checkpoint_last.pt"]
    arguments += ["--subset", "valid", "--csv", tmp_path / "a.csv", "--png", tmp_path / "a.png"]
    (tmp_path / "results").write_text("{}\n")
    arguments += ["--results", tmp_path / "results"]
    assert cli.main([str(argument) for argument in arguments]) == 0
    printed = capsys.readouterr().out
    assert f"WCPA {float(valid['valid_wcpa']):.3f}" in printed
    perplexity = float(re.search(r"perplexity ([\d.]+)", printed)[1])
    assert math.log2(perplexity) == pytest.approx(float(valid["valid_loss"]), abs=6e-4)
    floors = re.findall(r"([\d.]+) \(([-+][\d.]+) %\)", printed)
    notes = json.loads((data / "text" / "dyck.json").read_text())["splits"]["valid"]
    for (floor, more), key in zip(floors, ("floor", "floor_of_samples"), strict=True):
        assert float(floor) == pytest.approx(notes[key], abs=6e-5)
        assert float(more) == pytest.approx(100 * (perplexity / notes[key] - 1), abs=0.02)
    assert floors[0] != floors[1]
    rows = [line.split(",") for line in (tmp_path / "a.csv").read_text().splitlines()[1:]]
    assert float(valid["valid_wcpa"]) == pytest.approx(min(float(r[3]) for r in rows), abs=1e-4)
    text = (data / "text" / "valid.txt").read_text().split()
    assert sum(int(r[2]) for r in rows) == sum(token.endswith(")") for token in text)
    assert sum(int(r[1]) for r in rows) > 0
    assert (tmp_path / "a.png").stat().st_size > 1000
    first, last = (json.loads(r) for r in (tmp_path / "results").read_text().splitlines())
    assert first == {}
    assert last["subset"] == "valid"
    assert last["perplexity"] == pytest.approx(perplexity, abs=6e-5)
    assert (last["closed"], last["right"]) == tuple(sum(int(r[i]) for r in rows) for i in (2, 1))
    assert f"at distance {last['wcpa_distance']}, " in printed


def test_wcpa_of_several_batches():
    """WCPA is computed from sums over batches; it is not a mean over batches."""
    log = {"loss": 1.0, "ntokens": 1, "sample_size": 1}
    with metrics.aggregate(new_root=True) as total:
        for closed in ([(1, 1, 1), (3, 0, 2)], [], [(3, 3, 3), (5, 4, 5)]):
            DyckCrossEntropy.reduce_metrics([{**log, "closed": closed}])
    assert total.get_smoothed_values()["wcpa"] == 0.6


def test_analyze_dyck_without_a_dyck_folder(data, tmp_path, capsys):
    assert cli.main(["analyze", "dyck", str(tmp_path), "--path", "x"]) == 2
    assert "give a folder of casrnn data dyck" in capsys.readouterr().err
    assert cli.main(["analyze", "dyck", str(data), "--path", "x", "--subset", "dev"]) == 2
    assert "--subset is one of train, valid, test, test1" in capsys.readouterr().err
    assert cli.main(["analyze", "dyck", str(data), "--path", "x"]) == 2
    assert "checkpoint x does not exist" in capsys.readouterr().err
    for option in ("--csv", "--png", "--results"):
        where = [str(data), "--path", "x", option, "/nowhere/file"]
        assert cli.main(["analyze", "dyck", *where]) == 2
        assert "cannot write /nowhere/file: there is no folder /nowhere" in capsys.readouterr().err
