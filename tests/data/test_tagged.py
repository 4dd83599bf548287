"""Tagged corpora: schemes, readers of file formats, the prepared folder."""

import re

import pytest
from fairseq.data import Dictionary, data_utils
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled_corpora import fails, note, read_back, run
from seqeval.metrics import f1_score
from tagged_corpora import sentences, write_conll03, write_pos

from fairseq_casrnn.data.columns import separate_characters
from fairseq_casrnn.data.corpora import conll03, pos
from fairseq_casrnn.data.spans import are_spans, as_bioes, as_iob2, spans


@pytest.mark.parametrize(
    ("given", "bioes"),
    [
        ("B-PER I-PER B-PER O", "B-PER E-PER S-PER O"),  # IOB2: neighbours of the same type
        ("I-PER I-PER B-PER O", "B-PER E-PER S-PER O"),  # IOB1: only the second span starts with B
        ("I-LOC I-PER I-PER I-PER", "S-LOC B-PER I-PER E-PER"),  # another type starts a new span
        ("O I-LOC", "O S-LOC"),
        ("B-a-b I-a-b", "B-a-b E-a-b"),
        ("B-PER E-PER S-PER O", "B-PER E-PER S-PER O"),
        ("O O", "O O"),
        ("", ""),
    ],
)
def test_bioes(given, bioes):
    assert as_bioes(given.split()) == bioes.split()


TAGS = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=8)


@settings(deadline=None)
@given(TAGS)
def test_no_span_is_lost_in_bioes(tags):
    assert spans(as_bioes(tags)) == spans(tags)
    assert as_bioes(as_bioes(tags)) == as_bioes(tags)
    assert as_iob2(as_bioes(as_iob2(tags))).count("O") == tags.count("O")
    if spans(tags):
        assert f1_score([as_iob2(as_bioes(tags))], [tags]) == 1


@pytest.mark.parametrize(
    ("classes", "marked"),
    [
        (["O", "B-PER", "I-PER"], True),
        (["S-PER", "E-LOC", "O"], True),
        (["O"], False),
        (["NN", "O"], False),
        (["B-", "O"], False),
        (["I", "B-PER"], False),
    ],
)
def test_tags_that_mark_spans(classes, marked):
    assert are_spans(classes) == marked


def test_conll03(tmp_path):
    out = run(conll03, write_conll03(tmp_path / "raw"), tmp_path / "data")
    first = sentences(60, "train")[0]
    words, tags = ([row[i] for row in first] for i in (0, 2))
    zeros = [word.lower().replace("1998", "0000") for word in words]
    assert read_back(out)[0] == " ".join(zeros)
    assert read_back(out, "label")[0] == " ".join(as_bioes(tags))
    assert len(read_back(out)) == 60
    assert note(out)["document lines left out"] == 12 + 3 + 3
    assert note(out)["train"].startswith("60 sentences, ")
    assert note(out, "text") == {"tokenizer": "penn", "lowercase": True, "zero_digits": True}
    test = read_back(out, "input0", "test")
    assert len(test) == 15
    assert test[-1] == "<unk>"


def test_documents_without_a_blank_line(tmp_path):
    """The sentence before a document's end is not lost."""
    raw = write_conll03(tmp_path / "raw")
    whole = run(conll03, raw, tmp_path / "whole")
    text = (raw / "train.txt").read_text()
    assert "-DOCSTART- -X- -X- O\n\n" in text
    (raw / "train.txt").write_text(
        text.replace("-DOCSTART- -X- -X- O\n\n", "-DOCSTART- -X- -X- O\n")
    )
    out = run(conll03, raw, tmp_path / "data")
    for part in ("input0", "label"):
        assert read_back(out, part) == read_back(whole, part)
    assert note(out) == note(whole)


def test_nothing_to_learn(tmp_path, capsys):
    raw = write_conll03(tmp_path / "raw")
    for path in raw.iterdir():
        path.write_text(re.sub(r" [BIES]-\w+\n", " O\n", path.read_text()))
    error = fails(conll03.main, capsys, "--raw", raw, "--out", tmp_path / "data")
    assert "every word has the tag O; there is nothing to learn" in error
    assert not (tmp_path / "data").exists()


def test_spelling(tmp_path):
    """Characters keep capitals and digits; a letter that is not in training is <unk>."""
    out = run(conll03, write_conll03(tmp_path / "raw"), tmp_path / "data")
    folder = out / "data-bin" / "spelling"
    letters = Dictionary.load(str(folder / "dict.txt"))
    for split, name in (("train", "train"), ("test", "test")):
        rows = data_utils.load_indexed_dataset(str(folder / split), letters)
        for row, sentence in zip(rows, sentences(14, name), strict=False):
            text = "".join(" " if int(c) == letters.eos() else letters[int(c)] for c in row)
            assert text == "".join(f"{word} " for word, _, _ in sentence)
    last = rows[len(rows) - 1].tolist()
    assert last == [letters.unk(), letters.index("o"), letters.unk(), letters.eos()]


def test_characters_of_words():
    assert separate_characters(["ab", "c"]) == ["a", "b", "</s>", "c"]
    assert separate_characters([]) == []


def test_other_columns_and_forms(tmp_path):
    raw = write_conll03(tmp_path / "raw")
    out = run(conll03, raw, tmp_path / "pos", "--column", "pos", "--no-zero-digits")
    first = sentences(60, "train")[0]
    assert read_back(out, "label")[0] == " ".join(row[1] for row in first)
    assert "1998" in " ".join(read_back(out))
    out = run(conll03, raw, tmp_path / "case", "--no-lowercase", "--vocabulary", "all")
    assert read_back(out, "input0", "test")[-1] == "Zoë"
    assert note(out, "text")["lowercase"] is False


def test_tags_that_only_the_test_set_has(tmp_path):
    """Such tags get an index, so that they count as errors."""
    raw = write_conll03(tmp_path / "raw")
    with open(raw / "test.txt", "a", encoding="utf-8") as file:
        file.write("\nEU NNP B-NP B-ORG\n")
    out = run(conll03, raw, tmp_path / "data")
    assert note(out)["tags not in training"] == "S-ORG"
    assert read_back(out, "label", "test")[-1] == "S-ORG"


def test_pos(tmp_path):
    raw = write_pos(tmp_path / "raw")
    out = run(pos, raw, tmp_path / "u")
    first = sentences(60, "train")[0]
    assert read_back(out, "label")[0].split() == [
        "PROPN" if row[1] == "NNP" else "X" for row in first
    ]
    out = run(pos, raw, tmp_path / "x", "--tags", "xpos")
    assert read_back(out, "label")[0].split() == [row[1] for row in first]
    assert note(out)["tags"].startswith("4: ., CD, NN, NNP")


def spoil(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            " NNP B-NP B-PER",
            " NNP B-NP",
            "has 3 columns instead of 4 (word, part of speech, chunk, name)",
        ),
        ("B-PER", "PER", "'PER' is neither O nor of the form B-TYPE, I-TYPE; give"),
        ("B-PER", "B-", "'B-' is neither O nor of the form B-TYPE"),
    ],
)
def test_malformed_names(tmp_path, capsys, old, new, message):
    raw = write_conll03(tmp_path / "raw")
    line = spoil(raw / "valid.txt", old, new)
    error = fails(conll03.main, capsys, "--raw", raw, "--out", tmp_path / "data")
    assert f"valid.txt, line {line}" in error
    assert message in error
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\tX\tNN\t", "\tX\t", "is not a CoNLL-U word with ten columns"),
        ("\n2\t", "\nb\t", "is not a CoNLL-U word"),
        ("\tX\tNN\t", "\t_\tNN\t", "has no UPOS; choose another --tags"),
    ],
)
def test_malformed_treebank(tmp_path, capsys, old, new, message):
    raw = write_pos(tmp_path / "raw")
    line = spoil(raw / "en_ewt-ud-dev.conllu", old, new) + old.startswith("\n")
    error = fails(pos.main, capsys, "--raw", raw, "--out", tmp_path / "data")
    assert f"en_ewt-ud-dev.conllu, line {line} " in error
    assert message in error


def test_missing_files(tmp_path, capsys):
    for module in (conll03, pos):
        where = ("--raw", tmp_path / "none", "--out", tmp_path / "data")
        assert "none is not a folder; get " in fails(module.main, capsys, *where)
    raw = write_conll03(tmp_path / "raw")
    (raw / "test.txt").unlink()
    error = fails(conll03.main, capsys, "--raw", raw, "--out", tmp_path / "data")
    assert "holds no eng.testb nor test.txt" in error
    raw = write_pos(tmp_path / "ud")
    (raw / "fr_gsd-ud-dev.conllu").write_text("")
    error = fails(pos.main, capsys, "--raw", raw, "--out", tmp_path / "data")
    assert "must hold one file *-ud-dev.conllu, but has en_ewt-ud-dev.conllu, fr_gsd" in error
    (raw / "fr_gsd-ud-dev.conllu").unlink()
    (raw / "en_ewt-ud-test.conllu").write_text("# nothing\n")
    error = fails(pos.main, capsys, "--raw", raw, "--out", tmp_path / "data")
    assert "no sentence is left for test" in error
