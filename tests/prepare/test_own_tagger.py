"""The documentation's four commands from one's own data to answers of a tagger."""

import json

import pytest
from tagged_corpora import sentences

from .conftest import commands

pytestmark = pytest.mark.full  # test_own_classifier.py runs most of the same code


@pytest.fixture(scope="module")
def printed(bash, tmp_path_factory):
    """A folder in which the commands ran, and their output."""
    folder = tmp_path_factory.mktemp("own")
    rows = [[*rows[:-1], (f"{i}th", ".", "O")] for i, rows in enumerate(sentences(60))]
    text = "\n".join("".join(f"{w}\t{p}\t{t}\n" for w, p, t in sentence) for sentence in rows)
    (folder / "names.tsv").write_text(text)
    return folder, bash(commands("casrnn prepare tagging"), folder)


@pytest.mark.full
def test_documentation(printed):
    _, text = printed
    for line in (
        "columns: word: column 1, tag: column 3 of 3",
        "spans: IOB2, turned into BIOES",
        "prepared names/data-bin",
        "fairseq-train names/data-bin --user-dir ",
        "predictions: names/out/bicas2/seed1/test.predictions.tsv",
    ):
        assert f"\n{line}" in f"\n{text}"
    assert "--best-checkpoint-metric f1 " in text
    answer = text[text.rindex("Anna\t") :].rstrip("\n")
    words = [line.split("\t")[0] for line in answer.split("\n")]
    assert words == ["Anna", "Schmidt", "lives", "in", "New", "York", "."]


def test_predictions_show_the_original_words(printed):
    folder, text = printed
    run = folder / "names" / "out" / "bicas2" / "seed1"
    table = (run / "test.predictions.tsv").read_text()
    header, *blocks = table.removesuffix("\n").split("\n\n")
    assert header == "word\tgold\tpredicted\tprobability"
    names = (folder / "names.tsv").read_text().removesuffix("\n").split("\n\n")
    source = {tuple(line.split("\t")[0] for line in one.splitlines()): one for one in names}
    wrong = []
    for block in blocks:
        rows = [line.split("\t") for line in block.splitlines()]
        gold = source[tuple(row[0] for row in rows)]
        assert [line.split("\t")[2] for line in gold.splitlines()] == [row[1] for row in rows]
        assert len({row[3] for row in rows}) == 1  # the probability of all tags of a sentence
        assert 0 < float(rows[0][3]) <= 1
        wrong += [row for row in rows if row[1] != row[2]]
    assert len(blocks) == 6
    header, *errors = (run / "test.errors.tsv").read_text().splitlines()
    assert header == "gold\tpredicted\tprobability\tword\tline\tsentence"
    assert len(errors) == len(wrong)
    values = [float(line.split("\t")[2]) for line in errors]
    assert values == sorted(values, reverse=True)
    lines = (folder / "names.tsv").read_text().splitlines()
    for error in errors:
        _, _, _, word, line, sentence = error.split("\t")
        assert lines[int(line) - 1].split("\t")[0] == sentence.split()[0]
        assert word in sentence
    count = sum(len(block.splitlines()) for block in blocks)
    assert f"accuracy of tags in IOB2 {100 * (1 - len(wrong) / count):.2f} on {count} words" in text


def test_softmax_and_errors_of_the_wrong_kind(printed, bash):
    folder, _ = printed
    said = bash("casrnn train classification names", folder, status=2)
    assert said == "error: names is prepared for tagging; call casrnn train tagging\n"
    out = bash(
        "casrnn train tagging names --arch lstm --out other -- --max-epoch 1 --tagger-output "
        "softmax; casrnn evaluate names --out other",
        folder,
    )
    assert "6 sentences of test" in out


def test_tags_that_the_scheme_forbids(printed, bash):
    """--unconstrained-tags allows them, and the result records the option."""
    folder, _ = printed
    results = folder / "names" / "out" / "results.jsonl"
    bash("casrnn evaluate names --unconstrained-tags", folder)
    first, *_, last = map(json.loads, results.read_text().splitlines())
    assert (first["constrained_tags"], last["constrained_tags"]) == (True, False)
