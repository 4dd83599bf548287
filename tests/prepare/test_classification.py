"""``casrnn prepare classification`` with data in all forms."""

import csv
import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest
from labelled_corpora import NLI, note, parse, read_back, sentences

from fairseq_casrnn import cli
from fairseq_casrnn.data.text import write_lines
from fairseq_casrnn.prepare.layout import guess
from fairseq_casrnn.prepare.table_files import Table

from .conftest import refused

LABELS = ("neg", "pos")


def prepare(*argv):
    return cli.main(["prepare", "classification", *map(str, argv)])


def prepared_splits(tmp_path, file, *argv, out="out"):
    """Prepare a file; return the labels and words of all splits."""
    every = ("--vocabulary", "all")  # no word becomes <unk>
    assert prepare("--train", file, "--out", tmp_path / out, *every, *argv) == 0
    return {
        split: list(zip(*(read_back(tmp_path / out, part, split) for part in PARTS), strict=True))
        for split in ("train", "valid", "test")
    }


PARTS = ("label", "input0")


fails = partial(refused, prepare)


def rows(count=60, seed=0):
    """(label, text) pairs without duplicates."""
    found = sentences(count, seed)
    return [(LABELS[positive], f"It isn't {text}, no. {i}") for i, (text, positive) in
            enumerate(found)]  # fmt: skip


WORDS = {
    f"it is n't {text} , no. {i}".replace("it's", "it 's")
    for i, (text, _) in enumerate(sentences(60))
}


def write_tsv(path, table):
    write_lines(path, ("\t".join(row) for row in table))
    return path


def write_csv(path, table, delimiter=",", **options):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter, **options).writerows(table)
    return path


def write_jsonl(path, table, names=LABELS):
    write_lines(path, (json.dumps(dict(zip(names, row, strict=True))) for row in table))
    return path


def forms(folder):
    """Write the same examples in all forms."""
    table = rows()
    swapped = [(text, label) for label, text in table]
    yield write_tsv(folder / "plain.tsv", table), ()
    yield write_tsv(folder / "swapped.tsv", swapped), ()
    yield write_tsv(folder / "header.tsv", [("sentence", "label"), *swapped]), ()
    yield write_tsv(folder / "alone.tsv", [("klasse", "satz"), *table]), ()
    named = [("id", "klasse", "satz"), *((str(i), *row) for i, row in enumerate(table))]
    options = ("--text-column", "satz", "--label-column", "klasse")
    yield write_csv(folder / "named.csv", named), options
    yield write_csv(folder / "numbers.csv", named[1:]), ("--text-column", 3, "--label-column", 2)
    yield write_csv(folder / "excel.csv", [("Text", "Label"), *swapped], ";"), ()
    quoted = [("text", "label"), *swapped]
    yield write_csv(folder / "quoted.tsv", quoted, "\t", quoting=csv.QUOTE_ALL), ()
    (folder / "bom.tsv").write_text(
        "".join(f"{label}\t{text}\r\n" for label, text in table), encoding="utf-8-sig"
    )
    yield folder / "bom.tsv", ()
    yield write_jsonl(folder / "lines.jsonl", table, ("label", "text")), ()
    entries = [{"target": label, "review": text, "votes": [1]} for label, text in table]
    (folder / "list.json").write_text(json.dumps(entries))
    yield folder / "list.json", ()
    for i, (label, text) in enumerate(table):
        write_lines(folder / "folders" / label / f"{i:02}.txt", text.split("\n"))
    write_lines(folder / "folders" / "unsup" / "1.txt", ["of no class"])
    yield folder / "folders", ()


def test_all_forms_give_the_same_data(tmp_path, capsys):
    wanted = None
    for number, (file, options) in enumerate(forms(tmp_path)):
        found = prepared_splits(tmp_path, file, *options, out=f"out{number}")
        together = sorted(pair for split in found.values() for pair in split)
        assert {text for _, text in together} == WORDS, file
        assert {split: len(pairs) for split, pairs in found.items()} == {
            "train": 48, "valid": 6, "test": 6
        }  # fmt: skip
        wanted = wanted or together
        assert together == wanted, file
    assert f"left out: {tmp_path}/folders/unsup" in capsys.readouterr().out


def test_held_out_parts_depend_on_class_and_seed(tmp_path):
    table = [("pos", f"good {i}") for i in range(80)] + [("neg", f"bad {i}") for i in range(20)]
    table += [("odd", "what"), *table[:30]]  # a class with one example; some texts occur twice
    file = write_tsv(tmp_path / "x.tsv", table)
    splits = prepared_splits(tmp_path, file)
    texts = {split: {text for _, text in pairs} for split, pairs in splits.items()}
    assert len(texts["train"] | texts["valid"] | texts["test"]) == 101
    assert sum(map(len, texts.values())) == 101  # identical texts are in one split
    for split in ("valid", "test"):
        labels = [label for label, _ in set(splits[split])]
        assert (labels.count("pos"), labels.count("neg"), labels.count("odd")) == (8, 2, 0)
    assert splits == prepared_splits(tmp_path, file, out="again")
    assert splits != prepared_splits(tmp_path, file, "--split-seed", 2, out="other")


def test_held_out_parts_of_another_size(tmp_path, capsys):
    """The message says whether identical texts or small classes are the reason."""
    table = [("pos", "the same")] * 57 + [(LABELS[i % 2], f"text {i}") for i in range(6)]
    prepared_splits(tmp_path, write_tsv(tmp_path / "x.tsv", table))
    reason = "identical texts stay together and each class with enough different texts gives at"
    wanted = f"held out for valid: 1 of 63 instead of about 6, since {reason} least one\n"
    assert wanted in capsys.readouterr().out
    prepared_splits(tmp_path, write_tsv(tmp_path / "y.tsv", rows()), out="even")
    assert "instead of about" not in capsys.readouterr().out


def test_each_premise_is_in_one_split(tmp_path):
    table = [("label", "premise", "hypothesis")]
    table += [(NLI[i % 3], f"premise {i // 3}", f"hypothesis {i}") for i in range(90)]
    file = write_tsv(tmp_path / "x.tsv", table)
    premises = [{text for _, text in pairs} for pairs in prepared_splits(tmp_path, file).values()]
    assert list(map(len, premises)) == [24, 3, 3]
    assert len(set().union(*premises)) == 30
    # all rows have the same premise
    table = [(label, "premise", text) for label, _, text in table[1:]]
    file = write_tsv(tmp_path / "x.tsv", [("label", "premise", "hypothesis"), *table])
    assert len(prepared_splits(tmp_path, file, out="same")["test"]) == 9


def test_the_original_text_is_kept(tmp_path):
    file = write_csv(tmp_path / "x.csv", [("text", "label"), ("Bad,\nsaid  I", "neg"), *(
        (text, label) for label, text in rows())])  # fmt: skip
    prepared_splits(tmp_path, file)
    kept = {}
    for split in ("train", "valid", "test"):
        path = tmp_path / "out" / "data-bin" / "original" / f"{split}.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(entries) == len(read_back(tmp_path / "out", "label", split))
        kept |= {entry["line"]: entry["text"] for entry in entries}
    assert kept[2] == "Bad,\nsaid  I"
    assert [kept[4 + i] for i in range(60)] == [text for _, text in rows()]


def test_other_line_separators_are_part_of_a_text(tmp_path):
    """Lone carriage returns and Unicode's line separators are white space."""
    table = [("pos", f"a\rb\x85c\u2028d {i}") for i in range(10)]
    table += [("neg", f"e\rf {i}") for i in range(10)]
    wanted = {("pos", f"a b c d {i}") for i in range(10)} | {("neg", f"e f {i}") for i in range(10)}
    files = [
        write_tsv(tmp_path / "x.tsv", table),
        write_csv(tmp_path / "x.csv", table),
        write_jsonl(tmp_path / "x.jsonl", table, ("label", "text")),
    ]
    for number, file in enumerate(files):
        splits = prepared_splits(tmp_path, file, out=f"out{number}")
        assert {row for pairs in splits.values() for row in pairs} == wanted, file


def test_files_for_each_split(tmp_path, capsys):
    files = {name: write_tsv(tmp_path / f"{name}.tsv", rows(20, i)) for i, name in
             enumerate(("train", "valid", "test"))}  # fmt: skip
    with open(files["test"], "a") as file:
        file.write("pos\t" + rows(20, 0)[0][1] + "\n")
    found = prepared_splits(
        tmp_path, files["train"], "--valid", files["valid"], "--test", files["test"]
    )
    assert [len(found[name]) for name in ("train", "valid", "test")] == [20, 20, 21]
    assert "test: texts that are in train, too: 1" in capsys.readouterr().out
    found = prepared_splits(tmp_path, files["train"], "--test", files["test"], out="two")
    assert [len(found[name]) for name in ("train", "valid", "test")] == [18, 2, 21]


@pytest.mark.parametrize(
    ("names", "label", "form"),
    [
        (("premise", "hypothesis"), "label", "jsonl"),
        (("sentence1", "sentence2"), "gold_label", "tsv"),
        (("question1", "question2"), "is_duplicate", "tsv"),
        (("sentence1_binary_parse", "sentence2_binary_parse"), "gold_label", "jsonl"),
    ],
)
def test_pairs(names, label, form, tmp_path, capsys):
    """The layouts are those of GLUE and SNLI; SNLI's label "-" means that there is none."""
    table = []
    for i in range(48):
        texts = f"a man is here {i}", f"he is {i}"
        texts = map(parse, texts) if names[0].endswith("parse") else texts
        table.append(("-" if i % 8 == 7 else NLI[i % 3], *texts, str(i)))
    names = (label, *names, "pairID")
    if form == "jsonl":
        file = write_jsonl(tmp_path / "x.jsonl", table, names)
    else:
        file = write_tsv(tmp_path / "x.tsv", [names, *table])
    assert prepare("--train", file, "--out", tmp_path / "out", "--vocabulary", "all") == 0
    printed = capsys.readouterr().out
    assert 'train: skipped 6 rows without a gold label ("-")\n' in printed
    first, second = (
        [line for split in ("train", "valid", "test") for line in
         read_back(tmp_path / "out", part, split)]
        for part in ("input0", "input1")
    )  # fmt: skip
    kept = {i for i in range(48) if i % 8 < 7}
    assert set(first) == {f"a man is here {i}" for i in kept}
    assert all(a.split()[-1] == b.split()[-1] for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('"quite good"', "`` quite good ''"),  # quotation marks of the text
        ('"a ""good"" film"', "a `` good '' film"),  # quoted as by spreadsheets
        ('a "good film', "a `` good film"),
    ],
)
def test_quotation_marks_between_tabs(text, wanted, tmp_path):
    file = write_tsv(tmp_path / "x.tsv", [*rows(), ("pos", text)])
    assert wanted in {
        text for pairs in prepared_splits(tmp_path, file).values() for _, text in pairs
    }


def test_minus_is_a_label_if_there_is_plus(tmp_path):
    table = [("+-0"[i % 3], f"text {i}") for i in range(60)]
    found = prepared_splits(tmp_path, write_tsv(tmp_path / "x.tsv", table))
    assert {label for label, _ in found["train"]} == {"+", "-", "0"}


def test_a_pair_column(tmp_path):
    table = [(LABELS[i % 2], f"a {i}", f"b {i}") for i in range(40)]
    file = write_tsv(tmp_path / "x.tsv", table)
    options = ("--label-column", 1, "--text-column", 2, "--pair-column", 3)
    assert prepare("--train", file, "--out", tmp_path / "out", *options) == 0
    assert read_back(tmp_path / "out", "input1")[0].startswith("b ")


@pytest.mark.parametrize(
    ("names", "others", "refused"),
    [
        # the same classes in both columns
        (("text", "label", "sentiment"), ("bad", "good"), False),
        (("text", "Target", "Stance"), ("climate", "atheism", "climate"), True),
    ],
)
def test_two_columns_that_may_be_labels(names, others, refused, tmp_path, capsys):
    table = [(f"text {i}", LABELS[i % 2], others[i % len(others)]) for i in range(60)]
    file = write_tsv(tmp_path / "x.tsv", [names, *table])
    assert prepare("--train", file, "--out", tmp_path / "out") == 2 * refused
    if refused:
        assert "has 'Target' and 'Stance'; give --label-column" in capsys.readouterr().err
        prepared_splits(tmp_path, file, "--label-column", "Stance")
    else:
        assert "label: label" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "it is n't gut , nicht ? 你好"),
        (("--no-lowercase",), "It is n't GUT , nicht ? 你好"),
        (("--tokenizer", "whitespace"), "it isn't gut, nicht? 你好"),
        (("--tokenizer", "moses"), "it isn 't gut , nicht ? 你 好"),
        (("--tokenizer", "character", "--no-lowercase"), "I t i s n ' t G U T , n i c h t ? 你 好"),
    ],
)
def test_tokenizers(options, words, tmp_path):
    """The tokenizer is recorded, since ``casrnn predict`` must split text in the same way."""
    table = [(LABELS[i % 2], f"It isn't GUT, nicht? 你好 {i}") for i in range(40)]
    file = write_tsv(tmp_path / "x.tsv", table)
    found = prepared_splits(tmp_path, file, *options)
    assert found["train"][0][1].startswith(words)
    chosen = options[1] if "--tokenizer" in options else "penn"
    wanted = {"tokenizer": chosen, "lowercase": "--no-lowercase" not in options, "language": "en"}
    assert note(tmp_path / "out", "text") == wanted


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.tsv", "a\tb\nc\n", "x.tsv, line 2 has 1 column instead of 2, as in line 1"),
        ("x.csv", 'text,label\n"a" b,pos\n', "x.csv, line 2 has a misplaced quotation mark"),
        (
            "x.csv",
            'text,label\nd,pos\n"a\nb,pos\n',
            "x.csv, line 3 has a misplaced quotation mark (unexpected end of data); "
            'write "" for each quotation mark inside a quoted cell\n',
        ),
        ("x.csv", "text,label\na, b,pos\n", "x.csv, line 2 has 3 columns instead of 2"),
        ("x.txt", "good\nbad\n", "x.txt, line 1 has a single column; separate text and label"),
        ("x.csv", ",,\n", "x.csv only has empty cells"),
        ("x.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "x.jsonl, line 2 is not JSON ("),
        ("x.jsonl", "[1]", "x.jsonl, entry 1 is not a JSON object"),
        ("x.json", '{"text": ["a", "b"], "label": [0, 1]}', "x.json is a single object of lists"),
        ("x.json", '{"text": {"0": "a"}, "label": {"0": 1}}', "x.json is a single object of lists"),
        ("x.jsonl", '{"text": "a", "label": null}', "x.jsonl, line 1 has no label that is a"),
        ("x.jsonl", '{"text": "a", "label": NaN}', "x.jsonl, line 1 has no label that is a"),
        (
            "x.tsv",
            "a\tb\tc\nd\te\tf\n",
            "has 3 columns, none with a known name ('a', 'b', 'c'); give --text-column",
        ),
        ("x.tsv", "index\tsentence\n1\ta\n", "SELF has 'index', 'sentence'; give --label-column"),
        ("x.tsv", "text\tlabel\na\tpos\nb\t\n", "x.tsv, line 3 has no label; give it one, or"),
        ("x.tsv", "pos\ta\npos\tb\npos\tc\n", "the label is 'pos' throughout in --train"),
        ("x.tsv", "p\u200bos\ta\nneg\tb\nneg\tc\n", "has an invisible character, U+200B; remove"),
        (
            "x.tsv",
            "<pad>\ta\nneg\tb\nneg\tc\n<pad>\td\n",
            "line 1: the label <pad> is a special symbol",
        ),
        ("x.tsv", "pos\ta\nneg\tb\npos\tc\nneg\td\n", "4 different examples, too few to hold"),
        ("x.tsv", "", "x.tsv is empty; give a file with at least one example"),
        ("x.tsv", " \n\n", "x.tsv has no text; give a file with at least one example"),
        ("x.tsv", "text\tlabel\n", "x.tsv has a header but no rows; give a file with at least"),
        ("x.json", "[]", "x.json has an empty list; give a file with at least one example"),
        (
            "x.jsonl",
            '{"text": "a", "label": 1}\n{"txt": "b", "label": 2}\n',
            "x.jsonl, line 2 lacks 'text'; add it, or leave such rows out by --skip-malformed",
        ),
        ("x.json", '[{"text": "a", "label": 1},\n\n{"text": "b"}]', "entry 2 lacks 'label'; add"),
        ("x.tsv", "pos\ta\rneg\tb\r\n", "ends its lines with lone carriage returns; save it"),
        (
            "x.jsonl",
            '{"text": ["a"], "label": 1}',
            "x.jsonl: text has no text that is a string, number or boolean in any row; choose an",
        ),
        (
            "x.tsv",
            "text\tlabel\n" + "".join(f"text {n}\t{n % 12}.50\n" for n in range(60)),
            "the labels of --train are numbers such as '0.50', not classes; there is no model",
        ),
        ("x.tsv", "pos\ta\rneg\tb\r", "ends its lines with lone carriage returns; save it with"),
    ],
)
def test_bad_files(name, text, message, tmp_path, capsys):
    file = tmp_path / name
    file.write_bytes(text.encode())
    error = fails(capsys, tmp_path, "--train", file)
    assert message.replace("SELF", str(file)) in error


def test_malformed_rows_are_left_out_on_request(tmp_path, capsys):
    """Some of Quora's question pairs contain line ends, which break them into two rows."""
    header = "id\tquestion1\tquestion2\tis_duplicate"
    rows = [f"{n}\tWhat is {n}?\tWhy {n}?\t{n % 2}" for n in range(40)]
    file = tmp_path / "x.tsv"
    file.write_text("\n".join([header, *rows[:20], "7\tbroken", *rows[20:]]))
    error = fails(capsys, tmp_path, "--train", file)
    assert "x.tsv, line 22 has 2 columns instead of 4" in error
    assert "or leave such rows out by --skip-malformed" in error
    found = prepared_splits(tmp_path, file, "--skip-malformed")
    wanted = "train: skipped 1 row with the wrong number of columns\n"
    assert wanted in capsys.readouterr().out
    assert sum(map(len, found.values())) == 40

    file.write_text("\n".join([header, *rows[:20], *["7\tbroken"] * 5]))
    error = fails(capsys, tmp_path, "--train", file, "--skip-malformed")
    assert "line 22 has 2 columns instead of 4" in error
    assert "5 of 26 rows are too many for --skip-malformed to leave out" in error


def test_json_objects_without_a_text_or_label_can_be_skipped(tmp_path, capsys):
    file = tmp_path / "x.jsonl"
    found = [json.dumps({"text": text, "label": label}) for label, text in rows()]
    file.write_text("\n".join([*found, '{"text": "a"}', '{"label": "b"}']))
    assert "lacks 'label'; add it" in fails(capsys, tmp_path, "--train", file)
    kept = prepared_splits(tmp_path, file, "--skip-malformed")
    assert "train: skipped 2 rows without a text or label\n" in capsys.readouterr().out
    assert sum(map(len, kept.values())) == len(found)


def test_the_separator_of_spreadsheets(tmp_path, capsys):
    for number, delimiter in enumerate(",;"):
        file = write_csv(
            tmp_path / f"{number}.csv", [("text", "label"), *rows_swapped()], delimiter
        )
        file.write_bytes(f"sep={delimiter}\r\n".encode() + file.read_bytes())
        found = prepared_splits(tmp_path, file, out=str(number))
        assert {words for split in found.values() for _, words in split} == WORDS


def test_an_ambiguous_separator(tmp_path, capsys):
    lines = [f"so, {text};{label}" for label, text in rows()]
    file = tmp_path / "x.txt"
    write_lines(file, lines)
    assert "may have commas or semicolons" in fails(capsys, tmp_path, "--train", file)
    write_lines(file, ["text;label", *lines])
    assert len(prepared_splits(tmp_path, file)["train"]) > 0
    write_lines(file, ["sep=;", *lines])
    assert len(prepared_splits(tmp_path, file, out="again")["train"]) > 0


def rows_swapped():
    return [row[::-1] for row in rows()]


def test_a_space_before_quoted_cells(tmp_path):
    file = tmp_path / "x.csv"
    write_lines(file, ('"label", "text"', *(f'"{label}", "{text}"' for label, text in rows())))
    found = prepared_splits(tmp_path, file)
    assert {words for split in found.values() for _, words in split} == WORDS


def test_a_repeated_header(tmp_path, capsys):
    table = [("text", "label"), *rows_swapped()[:30], ("text", "label"), *rows_swapped()[30:]]
    found = prepared_splits(tmp_path, write_tsv(tmp_path / "x.tsv", table))
    assert {words for split in found.values() for _, words in split} == WORDS
    assert "train: skipped 1 row that repeat the header\n" in capsys.readouterr().out


def test_header_detection(tmp_path, capsys):
    """Rows with a class of the training set, or a class named like a column, are not headers."""
    options = ("--text-column", "2", "--label-column", "1")
    train = write_tsv(tmp_path / "train.tsv", rows())
    test = write_tsv(tmp_path / "test.tsv", [("pos", "one"), ("neg", "two"), ("neg", "three")])
    test.write_text(test.read_text() + "other\tfour\n")
    found = prepared_splits(tmp_path, train, "--test", test, *options)
    assert [words for _, words in found["test"]] == ["one", "two", "three", "four"]
    assert "left out as a header" not in capsys.readouterr().out

    named = write_tsv(tmp_path / "names.tsv", [("kind", "phrase"), *rows()])
    assert sum(map(len, prepared_splits(tmp_path, named, out="names").values())) == 60
    wanted = "train: the first row, left out as a header: phrase, kind\n"
    assert wanted in capsys.readouterr().out

    classes = [(("comment", "deny", "query")[n % 3], f"tweet {n}") for n in range(60)]
    file = write_tsv(tmp_path / "x.tsv", classes)
    for number, given in enumerate(((), options, options[2:])):
        assert (
            sum(map(len, prepared_splits(tmp_path, file, *given, out=str(number)).values())) == 60
        )


def test_minus_without_plus_is_not_a_label(tmp_path, capsys):
    """ "-" means that there is no label, even in a split with two labels."""
    train = [(label, f"{label} {n}") for n in range(20) for label in ("neutral", "so", "-")]
    files = [write_tsv(tmp_path / "train.tsv", [("label", "text"), *train])]
    files += [write_tsv(tmp_path / "valid.tsv", [("label", "text"), ("-", "a"), ("so", "b")])]
    found = prepared_splits(tmp_path, files[0], "--valid", files[1])
    assert found["valid"] == [("so", "b")]
    assert 'valid: skipped 1 row without a gold label ("-")\n' in capsys.readouterr().out


@pytest.mark.parametrize(("label", "texts"), [(0, ()), (None, (1,))])
def test_the_other_of_two_columns(label, texts):
    """The options decide, even if the label has more different values than the text."""
    table = Table(Path("x"), None, [(n, [str(n), str(n % 2)]) for n in range(6)], {})
    assert guess(table, label, texts, None) == (0, (1,))
    assert guess(table, None, (), None) == (1, (0,))


def test_a_folder_for_each_class(tmp_path, capsys):
    """Class folders contain only files, and there are no columns to name."""
    for label, text in rows():
        (tmp_path / "x" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / label / f"{text[-2:].strip()}.txt").write_text(text)
    (tmp_path / "x" / "__MACOSX").mkdir()
    (tmp_path / "x" / "__MACOSX" / "1.txt").write_text("not a text")
    (tmp_path / "x" / "README").write_text("beside the classes")
    (tmp_path / "x" / "pos" / "Thumbs.db").write_bytes(b"\0\xff")
    (tmp_path / "x" / "pos" / "empty.txt").write_text("\n")
    found = prepared_splits(tmp_path, tmp_path / "x")
    assert sum(map(len, found.values())) == 60
    assert "train: skipped 1 row without text\n" in capsys.readouterr().out
    error = fails(capsys, tmp_path, "--train", tmp_path / "x", "--label-column", "x")
    wanted = (
        "--label-column does not apply to SELF, a folder with a subfolder for each class; leave"
    )
    assert wanted.replace("SELF", str(tmp_path / "x")) in error
    (tmp_path / "x" / "pos" / "more").mkdir()
    error = fails(capsys, tmp_path, "--train", tmp_path / "x")
    assert "more is a folder in that of a class; put its texts into" in error


def test_json_after_a_blank_line(tmp_path):
    lines = [json.dumps({"text": text, "label": label}) for label, text in rows()]
    for name, content in (("x.txt", "\n" + "\n".join(lines)), ("x.json", f"\n[{','.join(lines)}]")):
        (tmp_path / name).write_text(content)
        found = prepared_splits(tmp_path, tmp_path / name, out=f"{name}-out")
        assert {words for split in found.values() for _, words in split} == WORDS


def test_splits_with_pairs_and_with_single_texts(tmp_path, capsys):
    train = write_tsv(tmp_path / "train.tsv", [("label", "text"), *rows()])
    pairs = [(label, text, text) for label, text in rows()]
    valid = write_tsv(tmp_path / "valid.tsv", [("label", "sentence1", "sentence2"), *pairs])
    error = fails(capsys, tmp_path, "--train", train, "--valid", valid)
    assert "--valid has pairs of texts, but --train has single texts; choose --text" in error
    error = fails(capsys, tmp_path, "--train", valid, "--valid", train)
    assert "--valid has single texts, but --train has pairs of texts; choose --text" in error


def test_invalid_encodings_and_missing_files(tmp_path, capsys):
    file = tmp_path / "x.tsv"
    for content, message in (
        ("pos\ta\n".encode("utf-16"), "x.tsv is UTF-16 or not text; save it as UTF-8"),
        (
            b"pos\ta\nneg\t\xe9\n",
            "x.tsv, line 2 is not valid UTF-8; convert it to UTF-8 (a file from Excel is often "
            "cp1252: iconv -f cp1252 -t utf-8 IN >OUT)",
        ),
    ):
        file.write_bytes(content)
        assert message in fails(capsys, tmp_path, "--train", file)
    assert "gone.tsv does not exist" in fails(capsys, tmp_path, "--train", tmp_path / "gone.tsv")
    (tmp_path / "folders" / "pos").mkdir(parents=True)
    error = fails(capsys, tmp_path, "--train", tmp_path / "folders")
    assert "must have a folder for each class, with a file for each text, but has pos" in error


def test_skipped_rows_and_the_separator(tmp_path, capsys):
    table = [("label", "text"), *rows(), ("pos", ""), ("neg", " "), ("-", "a")]
    table += [("neutral", f"so {i}") for i in range(9)]
    assert prepare("--train", write_csv(tmp_path / "x.csv", table), "--out", tmp_path / "a") == 0
    printed = capsys.readouterr().out
    wanted = 'train: skipped 2 rows without text, 1 row without a gold label ("-")\n'
    assert wanted in printed
    assert "separator: comma\n" in printed


def test_classes_that_differ_in_case(tmp_path, capsys):
    """They are different classes, which is usually a mistake. Spaces around them are dropped."""
    file = write_tsv(tmp_path / "x.tsv", rows())
    more = [(" pos ", "a"), ("Pos", "b"), ("POS", "c"), ("NEG", "d")]
    test = write_tsv(tmp_path / "y.tsv", [*rows(20, 1), *more])
    assert prepare("--train", file, "--out", tmp_path / "a") == 0
    assert "differ only" not in capsys.readouterr().out
    assert prepare("--train", file, "--test", test, "--out", tmp_path / "b") == 0
    wanted = "classes that differ only in upper and lower case: NEG, neg; POS, Pos, pos\n"
    assert wanted in capsys.readouterr().out


def test_changed_files(tmp_path, capsys):
    """Data prepared from files that have changed since then are not reused."""
    file = write_tsv(tmp_path / "x.tsv", rows())
    command = ("--train", file, "--out", tmp_path / "out")
    assert prepare(*command) == 0
    assert prepare(*command) == 0
    assert "is already prepared; --force" in capsys.readouterr().out
    write_tsv(file, rows()[:50])
    assert prepare(*command) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"error: {file} has changed since {tmp_path / 'out'} was prepared; add --force to "
    )
    assert prepare(*command, "--force") == 0
    assert note(tmp_path / "out")["train sentences"] == 42
    assert prepare(*command) == 0
    file.unlink()
    assert prepare(*command) == 0  # the file cannot be compared


def test_a_changed_folder(tmp_path, capsys):
    for i, (label, text) in enumerate(rows()):
        write_lines(tmp_path / "x" / label / f"{i:02}.txt", [text])
    command = ("--train", tmp_path / "x", "--out", tmp_path / "out")
    assert prepare(*command) == 0
    (tmp_path / "x" / "neg" / "extra.txt").write_text("bad")
    assert prepare(*command) == 2
    assert "x has changed since" in capsys.readouterr().err


def test_bad_options(tmp_path, capsys):
    file = write_csv(tmp_path / "x.csv", [("id", "text", "label"), *(
        (str(i), text, label) for i, (label, text) in enumerate(rows()))])  # fmt: skip
    for options, message in (
        (("--text-column", "txt"), "--text-column is txt, but SELF has 'id', 'text', 'label' in"),
        (("--label-column", "4"), "--label-column is 4, but SELF has 3 columns"),
        (
            ("--label-column", "id"),
            "have 60 values in 60 rows, such as '0', so they are not classes",
        ),
        (("--test", file), "--train, --valid and --test must be different files"),
        (("--language", "german"), "--language is german; give a code such as en or de"),
        (("--language", "de"), "--language de is for --tokenizer moses, and no other uses it; "),
        (("--min-count", "0"), "--min-count is 0; it must be at least 1"),
    ):
        error = fails(capsys, tmp_path, "--train", file, *options)
        assert message.replace("SELF", str(file)) in error
    file = write_csv(tmp_path / "twice.csv", [("Text", "label", "Text"), *(
        (text, label, f"no. {i}") for i, (label, text) in enumerate(rows()))])  # fmt: skip
    for options in ((), ("--text-column", "Text"), ("--label-column", "label")):
        error = fails(capsys, tmp_path, "--train", file, *options).lower()
        wanted = "twice.csv has the name 'text' for columns 1 and 3; give --text-column a number in"
        assert wanted in error
    found = prepared_splits(tmp_path, file, "--text-column", 3, "--label-column", "label")
    assert all(words.startswith("no") for split in found.values() for _, words in split)
    test = write_tsv(tmp_path / "test.tsv", [("Pos", ""), ("Pos", "c"), ("Neg", "d")])
    train = write_tsv(tmp_path / "train.tsv", rows())
    error = fails(capsys, tmp_path, "--train", train, "--test", test)
    assert "test.tsv, line 2: the label 'Pos' is not in --train (neg, pos), nor is any" in error
    entries = tmp_path / "test.json"
    entries.write_text(json.dumps([{"text": "a", "label": "Pos"}], indent=1))
    error = fails(capsys, tmp_path, "--train", entries, "--text-column", "texts")
    assert "test.json has 'text', 'label'; give one of them" in error
    error = fails(capsys, tmp_path, "--train", train, "--test", entries)
    assert "test.json, entry 1: the label 'Pos' is not in" in error
    for label in ("Neg", "Pos"):
        (tmp_path / "test" / label).mkdir(parents=True)
        (tmp_path / "test" / label / "a.txt").write_text("a")
    error = fails(capsys, tmp_path, "--train", train, "--test", tmp_path / "test")
    assert "test, file 1: the label 'Neg' is not in" in error


@pytest.mark.skipif(sys.platform != "linux", reason="a pipe has another name on other systems")
def test_text_from_a_pipe(tmp_path, capsys):
    """It has no name but the one that is typed, and cannot be compared with an earlier text."""
    text = write_tsv(tmp_path / "x.tsv", rows()).read_bytes()

    def prepare_pipe(*options):
        reading, writing = os.pipe()
        with open(reading, "rb"), open(writing, "wb") as file:
            file.write(text)
            file.close()
            status = prepare("--train", f"/dev/fd/{reading}", "--out", tmp_path / "out", *options)
        return status, f"/dev/fd/{reading}", capsys.readouterr().err

    assert prepare_pipe()[0] == 0
    status, name, error = prepare_pipe()
    assert status == 2
    assert error == (
        f"error: {name} is not a file, so it cannot be compared with the text from which "
        f"{tmp_path / 'out'} was prepared; add --force to prepare it again, or give another --out\n"
    )
    assert prepare_pipe("--force")[0] == 0
    assert prepare("--train", tmp_path / "x.tsv", "--out", tmp_path / "out") == 2
    assert f"was prepared with --train {name}, not" in capsys.readouterr().err
