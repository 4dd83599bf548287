"""The data folder that all commands for labelled sentences create."""

import argparse
import json
import re

import numpy
import pytest
from fairseq.data import Dictionary
from labelled_corpora import fails, note, read_back, run, write_mr, write_trec

from fairseq_casrnn.data.corpora import mr, sst, trec
from fairseq_casrnn.data.labelled import ClassificationCorpus, Example, prepare
from fairseq_casrnn.data.readers import add_arguments, hold_out
from fairseq_casrnn.errors import UserError


def test_the_layout_is_that_of_fairseq_preprocess(tmp_path):
    """The files are equal byte for byte for the same dictionary."""
    from command_lines.programs import fairseq

    out = run(mr, write_mr(tmp_path / "raw", 20), tmp_path / "out")
    for part in ("input0", "label"):
        ours = out / "data-bin" / part
        for split in ("train", "valid", "test"):
            lines = read_back(out, part, split)
            (tmp_path / f"{split}.{part}").write_text("".join(f"{line}\n" for line in lines))
        prefixes = []
        for split in ("train", "valid", "test"):
            prefixes += [f"--{split}pref", tmp_path / f"{split}.{part}"]
        options = ["--only-source", "--srcdict", ours / "dict.txt", "--destdir", tmp_path / part]
        fairseq("preprocess", *prefixes, *options)
        for split in ("train", "valid", "test"):
            for ending in ("bin", "idx"):
                theirs = (tmp_path / part / f"{split}.{ending}").read_bytes()
                assert theirs == (ours / f"{split}.{ending}").read_bytes()


def test_dictionary_of_labelled_sentences(tmp_path):
    raw = write_mr(tmp_path / "raw", 30)
    with open(raw / "rt-polarity.neg", "a") as file:
        file.write("unheard of\n")
    rare, every = (
        Dictionary.load(str(run(mr, raw, tmp_path / option, *given) / "data-bin/input0/dict.txt"))
        for option, *given in (("rare", "--min-count", 2), ("all", "--vocabulary", "all"))
    )
    assert "unheard" not in rare
    assert "unheard" in every
    assert numpy.all(numpy.diff(every.count[4:]) <= 0)


def prepare_examples(texts, out, *options):
    """The data-bin of training texts with label b; valid and test have "x y" and "y z"."""
    splits = {name: [Example("a", ("x y",)), Example("b", ("y z",))] for name in ("valid", "test")}
    splits["train"] = [*(Example("b", (text,)) for text in texts), Example("a", ("x",))]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(["--no-lowercase", *map(str, options), "--out", str(out)])
    prepare(lambda: ClassificationCorpus(splits), arguments)
    return out / "data-bin"


def words_of(folder):
    return set(Dictionary.load(str(folder / "input0" / "dict.txt")).symbols[4:])


def singletons(folder):
    return (folder / "input0" / "singletons.txt").read_text().split()


def test_singletons_are_counted_in_different_sentences(tmp_path):
    """A repeated sentence, such as a premise of several pairs, counts once."""
    texts = ("rare x", "rare x", "x y", "y y w")
    folder = prepare_examples(texts, tmp_path / "out")
    assert singletons(folder) == ["rare", "w"]
    # without unknown words, no word is a singleton
    assert not singletons(prepare_examples(texts, tmp_path / "all", "--vocabulary", "all"))
    # b is the more frequent class
    assert (folder / "label" / "dict.txt").read_text().split()[::2] == ["a", "b"]


def test_words_with_vectors(tmp_path):
    """All words with a vector are in the dictionary, and none is a singleton."""
    vectors = tmp_path / "some.vec"
    texts = ("x rare", "x y", "y Once", "y w", "x w")
    vectors.write_text("z 1 2\nonce 3 4\nother 5 6\n")
    folder = prepare_examples(texts, tmp_path / "out", "--vectors", vectors)
    assert words_of(folder) == {"x", "y", "w", "rare", "Once", "z"}
    assert singletons(folder) == ["rare"]
    # --min-count applies to words without vector; a file with capitals has no vector for Once
    vectors.write_text("z 1 2\nonce 3 4\nOther 5 6\n")
    often = ("--vectors", vectors, "--min-count", 2)
    folder = prepare_examples(texts, tmp_path / "rare", *often)
    assert words_of(folder) == {"x", "y", "w", "z"}
    # the prepared folder is kept
    assert prepare_examples(texts, tmp_path / "rare", *often) == folder
    with pytest.raises(UserError, match=r"was prepared with --vectors .*some.vec, not without it"):
        prepare_examples(texts, tmp_path / "rare", "--min-count", 2)


def test_words_with_vectors_of_a_folder_of_an_earlier_version(tmp_path):
    folder = prepare_examples(("x y",), tmp_path)
    options = json.loads((folder / "options.json").read_text())
    del options["vectors"]
    (folder / "options.json").write_text(json.dumps(options))
    assert prepare_examples(("x y",), tmp_path) == folder
    (tmp_path / "some.vec").write_text("z 1 2\n")
    with pytest.raises(UserError, match="was prepared without --vectors, not"):
        prepare_examples(("x y",), tmp_path, "--vectors", tmp_path / "some.vec")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the word vectors .*: No such file"),
        ("a film that\n", "line 1 is not a word and numbers"),
        ("a 1 2\nb 1\n", "line 2: 1 numbers, separated by spaces, instead of 2"),
        ("a 1 2\ny 1 b\n", r"some\.vec, line 2: not a word and 2 numbers; correct or drop the"),
        ("a 1 2\nrare 1 b\n", "line 2: not a word and 2 numbers"),
        ("y 1 2\nx nan 2\n", "line 2: a number is not finite"),
        ("y 1 2\n<unk> 1 b\n", "line 2: not a word and 2 numbers"),
        (
            "X 1 2\nRARE 1 2\n",
            r"has a vector for none of the 4 words; check the file's language and its letter case "
            r"\(the text keeps its capitals, --lowercase removes them\)",
        ),
    ],
)
def test_vectors_that_cannot_be_read(text, message, tmp_path):
    if text is not None:
        (tmp_path / "some.vec").write_text(text)
    with pytest.raises(UserError, match=message):
        prepare_examples(("x Rare",), tmp_path / "out", "--vectors", tmp_path / "some.vec")
    assert not (tmp_path / "out").exists()


def test_vectors_that_are_not_used_are_not_read(tmp_path):
    """Unused are other words, repetitions, and lower-case forms if the file has capitals."""
    vectors = tmp_path / "some.vec"
    vectors.write_text("x 1 2\nx 1 b\nother 1 b\nB 1 2\nrare nan 1\n")
    folder = prepare_examples(("x Rare",), tmp_path / "out", "--vectors", vectors)
    assert words_of(folder) == {"x", "Rare"}


def test_coverage_by_vectors(tmp_path, capsys):
    """Coverage is given for types and for running text; there is a warning if it is low."""
    vectors = tmp_path / "some.vec"
    vectors.write_text("x 1 2\n")
    folder = prepare_examples(("x x x y a b",), tmp_path / "some", "--vectors", vectors)
    read = capsys.readouterr()
    coverage = "1 of 5 words have one, 40% of the running text"  # including valid and test
    assert json.loads((folder / "prepare.json").read_text())["word vectors"] == coverage
    assert f"\nword vectors: {coverage}\n" in read.out
    assert not read.err
    options = ("--vectors", vectors, "--lowercase")
    prepare_examples(("x y a b c",), tmp_path / "few", *options)
    error = capsys.readouterr().err
    assert error.startswith(f"warning: {vectors} has a vector for only 1 of 6 words, ")
    assert error.endswith(
        "of the running text; check the file's language and its letter case (the text is "
        "lower-cased, --no-lowercase keeps its capitals)\n"
    )


def test_vectors_in_a_damaged_file(tmp_path, capsys):
    vectors = tmp_path / "some.vec"
    vectors.write_text("4 2\nx 1 2\ny 0 1 2\na of 1 2\n\n")
    prepare_examples(("x y",), tmp_path / "out", "--vectors", vectors)
    assert capsys.readouterr().err == (
        f"warning: {vectors}, line 3: more than 2 numbers, so training will skip the vector; "
        "correct or drop the line\n"
        f"warning: {vectors} has 3 vectors, but 4 by its first line; if it is cut off, copy or "
        "download it again\n"
    )
    vectors.write_text("2 2\nx 1 2\n\ny 1 2\n")
    prepare_examples(("x y",), tmp_path / "whole", "--vectors", vectors)
    assert not capsys.readouterr().err


def test_labels_of_the_test_set_alone(tmp_path, capsys):
    """A warning names them; they become classes, but no model predicts them."""
    raw = write_trec(tmp_path / "raw")
    with open(raw / "TREC_10.label", "a") as file:
        file.write("ENTY:food What is it ?\n")
    out = tmp_path / "out"
    assert trec.main(["--raw", str(raw), "--out", str(out), "--valid-size", "9"]) == 0
    assert capsys.readouterr().err == (
        "warning: test has ENTY, which training does not have, so no model can predict it; "
        "each counts as an error\n"
    )
    names = (out / "data-bin" / "label" / "dict.txt").read_text().split()[::2]
    assert names == ["ENTY", "HUM", "NUM"]


def test_missing_files_say_where_to_get_them(tmp_path, capsys):
    error = fails(sst.main, capsys, "--raw", tmp_path, "--out", tmp_path / "out")
    assert f"{tmp_path} holds no train.txt; get trainDevTestTrees_PTB.zip from https://" in error
    error = fails(sst.main, capsys, "--raw", tmp_path / "no", "--out", tmp_path / "out")
    assert "is not a folder" in error


def test_prepared_once(tmp_path, capsys):
    raw = write_mr(tmp_path / "raw")
    run(mr, raw, tmp_path / "out")
    capsys.readouterr()
    run(mr, raw, tmp_path / "out", "--lowercase")
    assert "is already prepared" in capsys.readouterr().out
    arguments = ["--raw", str(raw), "--out", str(tmp_path / "out"), "--fold", "3"]
    assert mr.main(arguments) == 2
    assert "was prepared with --fold 0, not 3; give another --out" in capsys.readouterr().err
    run(mr, raw, tmp_path / "out", "--force", "--fold", "3", "--no-lowercase")
    error = fails(mr.main, capsys, "--raw", raw, "--out", tmp_path / "out", "--fold", "3")
    assert "was prepared with --lowercase False, not True" in error
    error = fails(mr.main, capsys, "--raw", raw, "--out", tmp_path / "out", "--no-lowercase")
    assert "was prepared with --fold 3, not 0; give another" in error
    assert note(tmp_path / "out", "text")["lowercase"] is False
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["data-bin"]


def test_another_corpus_is_refused(tmp_path, capsys):
    """A folder is not reused for another corpus, and messages say what it was made from."""
    run(mr, write_mr(tmp_path / "mr"), tmp_path / "out")
    raw = write_trec(tmp_path / "trec")
    error = fails(trec.main, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{tmp_path}/out holds another corpus (mr), not trec; give another --out" in error
    run(mr, tmp_path / "nowhere", tmp_path / "out")
    assert f"already prepared, from {tmp_path}/mr; --force" in capsys.readouterr().out
    run(trec, raw, tmp_path / "out", "--force", "--valid-size", 9)
    assert note(tmp_path / "out")["test sentences"] == 12


def test_out_that_cannot_be_written(tmp_path, capsys):
    raw = write_mr(tmp_path / "raw")
    error = fails(mr.main, capsys, "--raw", raw, "--out", raw / "rt-polarity.neg")
    assert f"--out {raw}/rt-polarity.neg cannot be written (File exists); give another" in error
    error = fails(mr.main, capsys, "--raw", raw, "--out", "/proc/self")
    assert "--out /proc/self cannot be written (" in error


def test_min_count_above_all_counts(tmp_path, capsys):
    raw = write_mr(tmp_path / "raw")
    out = tmp_path / "new" / "folds" / "out"
    error = fails(mr.main, capsys, "--raw", raw, "--out", out, "--min-count", 9999)
    assert "--min-count is 9999, but no word occurs that often; give a smaller one" in error
    assert not (tmp_path / "new").exists()


def test_interrupted(tmp_path, capsys, monkeypatch):
    """No files are left, and there is no traceback."""

    def interrupt(*args):
        raise KeyboardInterrupt

    raw = write_mr(tmp_path / "raw")
    monkeypatch.setattr("fairseq_casrnn.data.columns.binarise", interrupt)
    assert mr.main(["--raw", str(raw), "--out", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert not (tmp_path / "out").exists()


def test_held_out_sentences_keep_their_order():
    rest, held = hold_out(list(range(9000)), 500, seed=1)
    assert len(held) == 500
    assert held == sorted(held)
    assert rest == sorted(set(range(9000)) - set(held))
    assert hold_out(list(range(9000)), 500, seed=1) == (rest, held)
    assert hold_out(list(range(9000)), 500, seed=2) != (rest, held)


@pytest.mark.parametrize(
    ("example", "what"),
    [
        (Example("a", ()), "label 'a' and 0 sentences; each example needs a label"),
        (Example("", ("x",)), "label '' and 1 sentences; each example needs a label"),
        (Example("a", ("x", "y")), "label 'a' and 2 sentences; each example needs a label"),
        (Example(3, ("x",)), "(3, 'x') must be a label and sentences, all of them text; correct"),
        (Example("a", (None,)), "('a', None) must be a label and sentences, all of them text"),
    ],
)
def test_malformed_examples(example, what):
    """A reader may return such examples for lines with too few or too many columns."""
    splits = {name: [Example("a", ("x",))] for name in ("train", "valid", "test")}
    splits["valid"].append(example)
    with pytest.raises(UserError, match=re.escape(f"valid, example 2: {what}")):
        ClassificationCorpus(splits).check()
