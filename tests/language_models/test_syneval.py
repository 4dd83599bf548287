"""Targeted syntactic evaluation (``casrnn analyze syneval``) on generated pairs of sentences."""

import csv
import itertools
import lzma
import random

import pytest
import torch
from models.common import dictionary

from fairseq_casrnn import cli
from fairseq_casrnn.analysis import syneval
from fairseq_casrnn.analysis.syneval import Accuracy, Pair
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import lm_scores, sentence_scores
from fairseq_casrnn.inference import loading

from .common import WORDS, random_model
from .conftest import train

LINES = [
    "simple_agrmt\tsing\tw4 w5\tw4 w6",
    "prep_anim\tx\tw4 w5 w6 w7\tw4 w5 w6 w8",
    "prep_inanim\tx\tw9 w5 w6\tw9 w5 w7",
    "simple_npi_anim\tpast\tw4 w5 w6\tw5 w5 w6\tw6 w5 w6",
    "simple_agrmt\tplur\tw4 nobody\tw4 knows",
]


def test_pairs_and_categories(tmp_path):
    for name, pack in (("pairs.tsv", bytes), ("pairs.tsv.xz", lzma.compress)):
        path = tmp_path / name
        path.write_bytes(pack("\n".join(LINES).encode() + b"\n"))
        pairs = syneval.read_pairs(path)
        assert pairs[0] == Pair("agreement: simple", "w4 w5", "w4 w6")
        assert [pair.category for pair in pairs[1:3]] == [pairs[1].category] * 2
        assert pairs[3:6] == [
            Pair("NPI: simple, grammatical vs. intrusive", "w4 w5 w6", "w5 w5 w6"),
            Pair("NPI: simple, intrusive vs. ungrammatical", "w5 w5 w6", "w6 w5 w6"),
            Pair("NPI: simple, grammatical vs. ungrammatical", "w4 w5 w6", "w6 w5 w6"),
        ]


def test_nineteen_categories_in_the_papers_order(tmp_path):
    lines = []
    for name in syneval.NAMES:
        sentences = ["a", "b", "c"] if "npi" in name else ["a", "b"]
        lines += ["\t".join([name + noun, "x", *sentences]) for noun in ("_anim", "_inanim", "")]
    (tmp_path / "t.tsv").write_text("\n".join(lines))
    pairs = syneval.read_pairs(tmp_path / "t.tsv")
    assert len({pair.category for pair in pairs}) == 19
    table = syneval.compare(pairs[::-1], dict.fromkeys("abc", 0.0))  # in the order of the paper
    assert list(table) == list(dict.fromkeys(pair.category for pair in pairs))


def test_a_tie_counts_as_wrong():
    pairs = [Pair("x", "a", "b"), Pair("x", "b", "a"), Pair("y", "a", "c"), Pair("x", "a", "c")]
    table = syneval.compare(pairs, {"a": -1.0, "b": -2.0, "c": -1.0})
    assert table == {"x": Accuracy(3, 1, 1), "y": Accuracy(1, 0, 1)}
    assert table["x"].share == pytest.approx(1 / 3)
    lines = syneval.table_lines({"baseline": table, "model": table})
    assert lines[-1].split() == ["all", "4", "0.250", "2", "0.250", "2"]


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("options", [{}, {"adaptive_softmax_cutoff": "9,15"}])
@torch.no_grad()
def test_scores(monkeypatch, end, options):
    """Shared prefixes and small batches give the scores of whole sentences."""
    monkeypatch.setattr(sentence_scores, "BATCH_TOKENS", 20)
    model, words = (
        random_model("second_order_lstm", decoder_hidden_size=16, **options),
        dictionary(),
    )
    sentences = [column for line in LINES for column in line.split("\t")[2:]]
    scores = sentence_scores.score(model, words, sentences, end)
    for sentence in sentences:
        tokens = torch.tensor(sentence_scores.encode(sentence, words, end))
        assert len(tokens) == len(sentence.split()) + end
        source = torch.cat([torch.tensor([2]), tokens[:-1]])[None]
        table = model.get_normalized_probs(model(source), log_probs=True)[0]
        expected = table.gather(1, tokens[:, None]).sum()
        assert scores[sentence] == pytest.approx(float(expected), rel=1e-5)
    assert scores["w4 nobody"] == scores["w4 knows"]  # both words are unknown


def test_transformer(data, tmp_path):
    """A transformer of fairseq may be the baseline."""
    sizes = ["--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-layers", 1]
    options = ["--sentence-reset", "--arch", "transformer_lm", "--decoder-attention-heads", 2]
    train(data, tmp_path, *options, *sizes, epochs=1)
    model, task = loading.load_language_model(tmp_path / "checkpoint_last.pt", data)
    found = sentence_scores.score(model, task.source_dictionary, ["w4 w5 w6", "w4 w5"])
    words = [task.source_dictionary.encode_line(line, append_eos=True).long() for line in found]
    exact = lm_scores.score_sentences(model, task.source_dictionary, words).sentences()
    assert list(found.values()) == pytest.approx(exact.tolist(), rel=1e-5)


def test_command(data, checkpoint, tmp_path, capsys):
    (tmp_path / "t.tsv").write_text("\n".join(LINES))
    command = ["analyze", "syneval", tmp_path / "t.tsv", "--data", data, "--path", checkpoint]
    command += ["--baseline", checkpoint, "--csv", tmp_path / "table.csv"]
    assert cli.main([str(part) for part in command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["category", "pairs", "baseline", "ties", "model", "ties"]
    assert len(lines) == 1 + 5 + 1
    assert lines[1].split()[:3] == ["agreement:", "simple", "2"]
    assert lines[1].split()[4] == "1"
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 2 * 5


def test_a_baseline_beside_the_model(data, checkpoint, tmp_path, capsys):
    """Both models have their own scores; </s> counts unless --without-end is given."""
    paths = [tmp_path / name for name in ("one.pt", "other.pt")]
    for factor, path in zip((4, -4), paths, strict=True):
        state = torch.load(checkpoint)
        state["model"] = {name: factor * weight for name, weight in state["model"].items()}
        torch.save(state, path)
    rng = random.Random(1)
    pairs = [[" ".join(rng.choices(WORDS, k=1 + n % 3)) for _ in "ab"] for n in range(100)]
    lines = ["\t".join(["simple_agrmt", "x", *pair]) for pair in pairs]
    (tmp_path / "t.tsv").write_text("\n".join(lines))
    command = ["analyze", "syneval", tmp_path / "t.tsv", "--data", data, "--path", paths[1]]
    command += ["--baseline", paths[0], "--csv", tmp_path / "table.csv"]
    seen = []
    for options in ([], ["--without-end"]):
        assert cli.main([str(part) for part in (*command, *options)]) == 0
        row = capsys.readouterr().out.splitlines()[1].split()
        with open(tmp_path / "table.csv", newline="") as file:
            written = [(line["model"], int(line["right"])) for line in csv.DictReader(file)]
        expected = []
        for path in paths:
            model, task = loading.load_language_model(path, data)
            words = task.source_dictionary
            scores = sentence_scores.score(model, words, itertools.chain(*pairs), end=not options)
            expected.append(sum(scores[better] > scores[worse] for better, worse in pairs))
        assert written == list(zip(("baseline", "model"), expected, strict=True))
        assert [row[-4], row[-2]] == [f"{right / 100:.3f}" for right in expected]
        assert expected[0] != expected[1]
        seen.append(expected)
    assert seen[0] != seen[1]


def test_table_in_a_file(tmp_path):
    table = {'a "b", c': Accuracy(6, 3, 2)}
    syneval.write_csv(tmp_path / "t.csv", {"model": table})
    with open(tmp_path / "t.csv", newline="") as file:
        assert list(csv.reader(file))[1:] == [["model", 'a "b", c', "6", "3", "2"]]


def test_another_language(data, checkpoint, tmp_path, capsys):
    (tmp_path / "t.tsv").write_text("simple_agrmt\tsing\tthe author laughs w4\tthe author w5\n")
    command = ["analyze", "syneval", tmp_path / "t.tsv", "--data", data, "--path", checkpoint]
    assert cli.main([str(part) for part in command]) == 2
    error = capsys.readouterr().err
    assert f"5 of 7 words are not in the dictionary of {data}, such as " in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\tc\td\na\tb\tc\n", "t.tsv, line 2 does not have four or five columns"),
        (b"a\tb\tc\t \n", "line 1 does not have four or five columns"),
        (b"", "is empty"),
        (b"a\tb\tc\t\xff\n", "line 1 is not valid UTF-8"),
    ],
)
def test_malformed_files(tmp_path, content, message):
    (tmp_path / "t.tsv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        syneval.read_pairs(tmp_path / "t.tsv")
    (tmp_path / "t.tsv.xz").write_bytes(b"no xz")
    with pytest.raises(UserError, match="is not a complete xz file"):
        syneval.read_pairs(tmp_path / "t.tsv.xz")
    with pytest.raises(UserError, match="does not exist"):
        syneval.read_pairs(tmp_path / "none.tsv")


def test_special_symbols_are_unknown_words():
    words = dictionary()
    assert sentence_scores.encode("<pad> w4 </s>", words, False) == (words.unk(), 4, words.unk())
