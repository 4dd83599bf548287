"""The readers of classification corpora: counts, labels, words, and malformed files."""

import json

import pytest
from labelled_corpora import (
    fails,
    note,
    read_back,
    run,
    write_mr,
    write_mrpc,
    write_nli,
    write_plain_nli,
    write_quora,
    write_reviews,
    write_rte,
    write_sick,
    write_sst,
    write_trec,
)

from fairseq_casrnn.data.corpora import mr, nli, paraphrase, reviews16, rte, sick, sst, trec
from fairseq_casrnn.errors import UserError

# --- SST ---------------------------------------------------------------------------------------

TREE = "(3 (2 The) (4 (1 (2 so-so) (0 -LRB-film-RRB-)) (3 9\\/11\u00a0)))"


def test_phrases_of_a_tree():
    assert sst.phrases("(3 (2 It) (4 (3 's) (1 -LRB-)))") == [
        (3, ["It", "'s", "("]),
        (4, ["'s", "("]),
        (1, ["("]),
        (3, ["'s"]),
        (2, ["It"]),
    ]
    # a no-break space is part of a word
    assert sst.phrases("(2 9\\/11\u00a0a)") == [(2, ["9/11\u00a0a"])]


@pytest.mark.parametrize(
    "line",
    [
        "(3 (2 a) (1 b)",
        "(3 a))",
        "(7 a)",
        "(12 a)",
        "( a)",
        "(3 )",
        "a b",
        "(3 a) b",
        "(3 (2 a)) (2 b)",
        "(3 (2 a) b)",
        "(3 (2 a b) (2 c))",
        "(3 b (2 a))",
    ],
)
def test_invalid_trees(line):
    with pytest.raises(ValueError, match=r"bracket|rating|text|without its own node"):
        sst.phrases(line)


def test_sst_has_the_papers_numbers_of_phrases(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    line = "(4 (1 bad) (3 (2 but) (4 good)))\n"  # five nodes, of which four are not neutral
    (raw / "train.txt").write_text(line + "(2 so)\n" + line.replace("4", "0"))
    (raw / "dev.txt").write_text("(2 so)\n(3 well)\n")
    (raw / "test.txt").write_text("(0 (2 so) (1 bad))\n")
    two, five = (run(sst, raw, tmp_path / n, "--classes", n) for n in "25")
    assert (note(two)["train sentences"], note(two)["valid sentences"]) == (8, 1)
    assert (note(five)["train sentences"], note(five)["valid sentences"]) == (11, 2)
    assert read_back(two)[:4] == ["bad but good", "but good", "good", "bad"]
    assert read_back(two, "label")[:4] == ["positive", "positive", "positive", "negative"]
    assert read_back(two, "input0", "test") == ["<unk> bad"]
    assert set(read_back(five, "label")) == set(sst.FIVE)
    # each word occurs in one whole sentence, but in several phrases
    assert (two / "data-bin/input0/singletons.txt").read_text() == "bad\nbut\ngood\nso\n"
    only = run(sst, raw, tmp_path / "only", "--sentences-only")
    assert read_back(only) == ["bad but good", "bad but good"]


def test_malformed_tree_is_named(tmp_path, capsys):
    raw = write_sst(tmp_path / "raw")
    with open(raw / "train.txt", "a") as file:
        file.write("(3 (2 a) b\n")
    error = fails(sst.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{raw}/train.txt, line 61 is not a bracketed tree" in error
    assert not (tmp_path / "out").exists()


# --- MR ----------------------------------------------------------------------------------------


def test_folds_cover_everything_once(tmp_path):
    raw = write_mr(tmp_path / "raw", each=24)
    outs = [run(mr, raw, tmp_path / f"{k}", "--fold", k) for k in range(10)]
    tests = [line for out in outs for line in read_back(out, split="test")]
    every = [line for s in ("train", "valid", "test") for line in read_back(outs[0], split=s)]
    assert sorted(tests) == sorted(every)
    assert len(tests) == 48
    assert read_back(outs[0], split="valid") == read_back(outs[1], split="test")
    for out in outs:
        assert 3 <= sum(len(read_back(out, split=s)) for s in ("valid", "test")) / 2 <= 5
    text = " ".join(every)
    assert "it 's" in text
    assert "café" in text
    # raw text is tokenised, so punctuation is split off
    assert note(outs[0], "text") == {"tokenizer": "penn", "lowercase": True}


def test_folds_of_identical_sentences(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in mr.FILES.values():
        (raw / name).write_text("so so\n" * 20)
    splits = mr.read_corpus(raw, 9, 1).splits
    assert {name: len(part) for name, part in splits.items()} == {
        "train": 32,
        "valid": 4,
        "test": 4,
    }


def test_wrong_fold(tmp_path, capsys):
    raw = write_mr(tmp_path / "raw")
    error = fails(mr.main, capsys, "--raw", raw, "--out", tmp_path / "out", "--fold", 10)
    assert "--fold is 10; it must lie in 0…9" in error


# --- TREC --------------------------------------------------------------------------------------


def test_trec(tmp_path):
    raw = write_trec(tmp_path / "raw")
    coarse = run(trec, raw, tmp_path / "coarse", "--valid-size", 10)
    assert (note(coarse)["train sentences"], note(coarse)["valid sentences"]) == (70, 10)
    assert set(read_back(coarse, "label", "test")) == {"NUM", "HUM"}
    fine = run(trec, raw, tmp_path / "fine", "--valid-size", 10, "--fine")
    assert set(read_back(fine, "label")) == {"NUM:date", "NUM:count", "HUM:ind"}


def test_question_without_type(tmp_path, capsys):
    raw = write_trec(tmp_path / "raw")
    with open(raw / "TREC_10.label", "a") as file:
        file.write("What is it ?\n")
    error = fails(trec.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert "TREC_10.label, line 13 is not TYPE:subtype and a question" in error


# --- NLI ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "txt"])
@pytest.mark.parametrize("corpus", ["snli", "multinli"])
def test_nli_formats(tmp_path, corpus, form):
    raw = write_nli(tmp_path / "raw", corpus, form)
    out = run(nli, raw, tmp_path / "out", "--corpus", corpus)
    found = note(out)
    assert found["train pairs"] == 72
    assert found["train pairs without a gold label, dropped"] == 12
    first, second = read_back(out), read_back(out, "input1")
    labels = read_back(out, "label")
    for a, b, label in zip(first, second, labels, strict=True):
        assert "(" not in a
        assert (label == "entailment") == (a == b)
    assert not (out / "data-bin" / "input1" / "other").exists()


def test_plain_snli_on_its_development_set(tmp_path):
    raw = write_plain_nli(tmp_path / "raw")
    out = run(nli, raw, tmp_path / "out", "--train-on-dev", "--valid-size", 20)
    found = note(out)
    assert (found["train pairs"], found["valid pairs"], found["test pairs"]) == (40, 20, 60)
    assert found["reduced data"] == "trained on a part of the development set"


def test_plain_snli_is_not_multinli(tmp_path, capsys):
    raw = write_plain_nli(tmp_path / "raw")
    command = ["--raw", raw, "--out", tmp_path / "out", "--corpus", "multinli"]
    error = fails(nli.main, capsys, *command, "--train-on-dev", "--valid-size", 20)
    assert (
        f"{raw} holds no multinli_1.0_dev_matched.jsonl nor multinli_1.0_dev_matched.txt" in error
    )
    assert "or give --corpus snli for SNLI's files" in error


def test_official_files_are_preferred_to_plain_ones(tmp_path):
    raw = write_nli(tmp_path / "raw")
    pairs = nli.read_split(raw, "snli", "valid")
    for path in write_plain_nli(tmp_path / "plain").iterdir():
        path.rename(raw / path.name)
    assert nli.read_split(raw, "snli", "valid") == pairs
    (raw / "snli_1.0_dev.jsonl").unlink()
    assert nli.read_split(raw, "snli", "valid") != pairs


def test_words_of_another_corpus(tmp_path, capsys):
    """--words-of appends the words; the corpus's own words keep their indices and counts."""
    raw = write_nli(tmp_path / "raw")
    other = run(trec, write_trec(tmp_path / "trec"), tmp_path / "other", "--valid-size", 9)
    with open(other / "data-bin/input0/dict.txt", "a") as file:
        file.write("madeupword0000 0\n")  # a filler word of fairseq-preprocess
    alone, out = run(nli, raw, tmp_path / "alone"), tmp_path / "out"
    run(nli, raw, out, "--words-of", other / "data-bin")
    command = ["--raw", raw, "--out", alone, "--words-of", other / "data-bin"]
    assert f"{alone} was prepared without --words-of, not {other}/data-bin; give another --out" in (
        fails(nli.main, capsys, *command)
    )
    command = ["--raw", raw, "--out", out]
    assert f"{out} was prepared with --words-of {other}/data-bin, not without it; give" in (
        fails(nli.main, capsys, *command)
    )
    own, added = (
        [line.split() for line in (folder / "data-bin/input0/dict.txt").read_text().splitlines()]
        for folder in (alone, out)
    )
    theirs = (other / "data-bin/input0/dict.txt").read_text().splitlines()
    new = {line.split()[0] for line in theirs[:-1]} - {word for word, _ in own}
    assert added[: len(own)] == own
    assert sorted(added[len(own) :]) == [[word, "0"] for word in sorted(new)]
    assert new
    error = fails(nli.main, capsys, "--raw", raw, "--out", tmp_path / "no", "--words-of", tmp_path)
    assert "input0/dict.txt does not exist; give --words-of the data-bin of a prepared" in error
    (other / "data-bin/input0/dict.txt").write_text("damaged\n")
    command = ["--raw", raw, "--out", tmp_path / "no", "--words-of", other / "data-bin"]
    assert "dict.txt" in fails(nli.main, capsys, *command)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 85 is not JSON"),
        ("[1]", "line 85 has no text gold_label"),
        ('{"gold_label": "neutral"}', "line 85 has no text sentence1_binary_parse"),
        (
            '{"gold_label": "neutral", "sentence1_binary_parse": null}',
            "line 85 has no text sentence1_binary_parse",
        ),
    ],
)
def test_malformed_jsonl_is_named(tmp_path, capsys, line, message):
    raw = write_nli(tmp_path / "raw")
    with open(raw / "snli_1.0_train.jsonl", "a") as file:
        file.write(line + "\n")
    error = fails(nli.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"snli_1.0_train.jsonl, {message}" in error


def test_malformed_txt_is_named(tmp_path, capsys):
    raw = write_nli(tmp_path / "raw", form="txt")
    with open(raw / "snli_1.0_train.txt", "a") as file:
        file.write("neutral\n")
    error = fails(nli.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert "snli_1.0_train.txt, line 86 has 1 column instead of " in error


def test_unequal_plain_files(tmp_path, capsys):
    raw = write_plain_nli(tmp_path / "raw")
    with open(raw / "s2.dev", "a") as file:
        file.write("more\n")
    error = fails(nli.main, capsys, "--raw", raw, "--out", tmp_path / "out", "--train-on-dev")
    assert "labels.dev has 60 lines but" in error
    assert "line n of one must belong to line n of the other" in error


def test_words_of_parses_are_those_of_raw_text(tmp_path, capsys):
    """Brackets are escaped in the parses; there is no choice of tokenizer."""
    raw = write_nli(tmp_path / "raw")
    entry = {
        "gold_label": "neutral",
        "sentence1_binary_parse": "( ( a cook ) ( -LRB- ( or\\/and -RRB- ) ) )",
        "sentence2_binary_parse": "it",
    }
    with open(raw / "snli_1.0_train.jsonl", "a") as file:
        file.write(json.dumps(entry) + "\n")
    out = run(nli, raw, tmp_path / "out")
    assert read_back(out)[-1] == "a cook ( or/and )"
    text = json.loads((out / "data-bin" / "text.json").read_text())
    assert text["tokenizer"] == "penn"
    with pytest.raises(SystemExit):
        nli.main(["--raw", str(raw), "--out", str(tmp_path / "other"), "--tokenizer", "moses"])
    assert "unrecognized arguments: --tokenizer moses" in capsys.readouterr().err


def test_another_encoding_of_a_utf8_corpus(tmp_path, capsys):
    """MR and TREC are distributed in other encodings; tables of pairs are not."""
    raw = write_rte(tmp_path / "raw")
    with open(raw / "train.tsv", "ab") as file:
        file.write("999\tcafé\tbar\tentailment\n".encode("latin-1"))
    error = fails(rte.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    number = (raw / "train.tsv").read_bytes().count(b"\n")
    assert f"train.tsv, line {number} is not valid UTF-8; convert it to UTF-8" in error


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_wide_encodings(tmp_path, capsys, encoding):
    """Windows' "Unicode" is not an encoding in which single lines can be read."""
    raw = write_mr(tmp_path / "raw")
    path = raw / "rt-polarity.pos"
    path.write_text(path.read_text(encoding="latin-1"), encoding=encoding)
    error = fails(mr.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{path}, line 1 has a zero byte: it is UTF-16 or not text; save it as UTF-8" in error
    assert not (tmp_path / "out").exists()


def test_brackets_of_plain_lines_are_words(tmp_path):
    raw = write_plain_nli(tmp_path / "raw")
    lines = (raw / "s1.dev").read_text().splitlines()
    (raw / "s1.dev").write_text("\n".join(f"( {line} )" for line in lines) + "\n")
    found = nli.read_split(raw, "snli", "valid")[0]
    assert all(words[0] == "(" and words[-1] == ")" for words, _ in (e.sentences for e in found))


def test_unknown_label_is_named(tmp_path):
    raw = write_plain_nli(tmp_path / "raw")
    labels = (raw / "labels.dev").read_text().splitlines()
    labels[2] = "perhaps"
    (raw / "labels.dev").write_text("\n".join(labels) + "\n")
    with pytest.raises(UserError, match=r"labels\.dev, line 3: 'perhaps' is not one of"):
        nli.read_split(raw, "snli", "valid")


# --- tables of pairs ---------------------------------------------------------------------------


def test_quora(tmp_path):
    out = run(paraphrase, write_quora(tmp_path / "raw"), tmp_path / "out")
    assert [note(out)[f"{s} pairs"] for s in ("train", "valid", "test")] == [60, 9, 11]
    assert read_back(out, "label")[:2] == ["different", "same"]
    assert note(out, "text")["tokenizer"] == "penn"  # the tokenizer of the files
    assert not read_back(out)[1].endswith(" .")
    assert read_back(out)[1] == read_back(out, "input1")[1]


def test_mrpc(tmp_path):
    raw = write_mrpc(tmp_path / "raw")
    out = run(paraphrase, raw, tmp_path / "out", "--corpus", "mrpc", "--valid-size", 10)
    assert [note(out)[f"{s} pairs"] for s in ("train", "valid", "test")] == [50, 10, 11]
    assert read_back(out)[0].startswith('" ')  # split off as by Moses, and not escaped


def test_mrpc_is_not_quora(tmp_path, capsys):
    raw = write_mrpc(tmp_path / "raw")
    error = fails(paraphrase.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{raw} holds no train.tsv; get Quora" in error
    assert error.rstrip().endswith("or give --corpus mrpc for MRPC's files")


def test_sick(tmp_path):
    out = run(sick, write_sick(tmp_path / "raw"), tmp_path / "out")
    assert [note(out)[f"{s} pairs"] for s in ("train", "valid", "test")] == [60, 9, 11]
    assert read_back(out, "label")[:3] == ["entailment", "neutral", "contradiction"]


def test_a_table_without_its_header(tmp_path, capsys):
    raw = write_sick(tmp_path / "raw")
    (path,) = raw.glob("*train*")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    error = fails(sick.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{path}, line 1 is a pair, not the names of the columns" in error


def test_rte(tmp_path):
    out = run(rte, write_rte(tmp_path / "raw"), tmp_path / "out", "--valid-size", 10)
    assert [note(out)[f"{s} pairs"] for s in ("train", "valid", "test")] == [50, 10, 11]
    assert set(read_back(out, "label")) == {"entailment", "not_entailment"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\ta\tb\tmaybe", "train.tsv, line 62: the label 'maybe' is not one of entailment, not"),
        ("1\ta\tentailment", "train.tsv, line 62 has 3 columns instead of 4"),
    ],
)
def test_malformed_pairs_are_named(tmp_path, capsys, line, message):
    raw = write_rte(tmp_path / "raw")
    with open(raw / "train.tsv", "a") as file:
        file.write(line + "\n")
    assert message in fails(rte.main, capsys, "--raw", raw, "--out", tmp_path / "out")


# --- reviews -----------------------------------------------------------------------------------


def test_reviews(tmp_path):
    raw = write_reviews(tmp_path / "raw")
    out = run(reviews16, raw, tmp_path / "out", "--set", "books", "MR", "--valid-size", 8)
    for name in ("books", "MR"):
        assert note(out / name)["train sentences"] == 52
        assert note(out / name)["valid sentences"] == 8
        assert note(out / name)["test sentences"] == 12
    assert read_back(out / "books", split="test")[0] == "good café – fine"
    tokenizers = [note(out / name, "text")["tokenizer"] for name in ("books", "MR")]
    assert tokenizers == ["penn", "penn"]


def test_review_without_label(tmp_path, capsys):
    raw = write_reviews(tmp_path / "raw")
    with open(raw / "MR.task.train", "a") as file:
        file.write("5\tgood\n")
    error = fails(reviews16.main, capsys, "--raw", raw, "--out", tmp_path / "out", "--set", "MR")
    assert "MR.task.train, line 61 is not 0 or 1, a tab and a review" in error
