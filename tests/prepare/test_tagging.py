"""``casrnn prepare tagging``: files in columns, schemes of tags, and errors."""

import json
from functools import partial

import pytest
from labelled_corpora import note, read_back
from tagged_corpora import sentences, write_conll03, write_pos

from fairseq_casrnn import cli
from fairseq_casrnn.data.corpora import conll03, pos
from fairseq_casrnn.data.spans import as_bioes, count_orphan_continuations, find_scheme

from .conftest import refused


def prepare(*argv):
    return cli.main(["prepare", "tagging", *map(str, argv)])


def prepared_sentences(tmp_path, file, *argv, out="out"):
    """Prepare a file; return (words, tags) of the sentences of all splits, sorted."""
    every = ("--vocabulary", "all")
    assert prepare("--train", file, "--out", tmp_path / out, *every, *argv) == 0
    return sorted(
        pair
        for split in ("train", "valid", "test")
        for pair in zip(
            *(read_back(tmp_path / out, part, split) for part in ("input0", "label")), strict=True
        )
    )


fails = partial(refused, prepare)


# Some words occur with several tags, and no two sentences are equal.
ROWS = [[*rows[:-1], (f"end{i}", ".", "O")] for i, rows in enumerate(sentences(40))]
IOB2 = [[tag for _, _, tag in rows] for rows in ROWS]
WANTED = sorted(
    (" ".join(word for word, _, _ in rows).lower(), " ".join(as_bioes(tags)))
    for rows, tags in zip(ROWS, IOB2, strict=True)
)
DIGITS = str.maketrans("123456789", "0" * 9)
WANTED = [(words.translate(DIGITS), tags) for words, tags in WANTED]


def write(path, line, rows=ROWS, between="\n"):
    """Write a file of lines ``line(number, word, part of speech, tag)``."""
    text = between.join(
        "".join(line(n, *row) + "\n" for n, row in enumerate(sentence, start=1))
        for sentence in rows
    )
    path.write_text(text, encoding="utf-8")
    return path


FORMS = {
    "two columns": (lambda n, w, p, t: f"{w} {t}", "\n", ()),
    "tabs": (lambda n, w, p, t: f"{w}\t{t}", " \n\t\n", ()),
    "CoNLL-2003": (lambda n, w, p, t: f"{w} {p} X {t}", "\n-DOCSTART- -X- O O\n\n", ()),
    "bare": (lambda n, w, p, t: f"{w} {p} X {t}", "\n-DOCSTART-\n", ()),
    "GermEval": (
        lambda n, w, p, t: f"{n}\t{w}\t{t}\tO",
        "\n#\thttp://x.org [2005]\n",
        ("--columns", "_,word,tag,_"),
    ),
    "swapped": (lambda n, w, p, t: f"{t}  {p}  {w}", "\n", ("--columns", "tag,_,word")),
    "comments": (lambda n, w, p, t: f"{w} {t}", "\n# a comment of many words\n", ()),
    "marks": (lambda n, w, p, t: f"\ufeff{w}\t{t}\r", "\r\n", ()),
    "comments of four words": (lambda n, w, p, t: f"{w} {p} _ {t}", "\n# sent_id = 3\n", ()),
    "MultiCoNER": (
        lambda n, w, p, t: f"{w} _ _ {t}",
        "\n# id 6f1a-77aa\tdomain=en\n",
        ("--columns", "word,_,_,tag"),
    ),
    "a mark and a name": (lambda n, w, p, t: f"{w}\t{t}", "\n#\tdoc1\n", ()),
    "ten columns, but not CoNLL-U": (lambda n, w, p, t: w + "\t_" * 8 + f"\t{t}", "\n", ()),
    "an empty column": (lambda n, w, p, t: f"{w}\t{t}" + "\t" * (n == 2), "\n", ()),
    "ranges without CoNLL-U's columns": (
        lambda n, w, p, t: f"{n}\t{w}\t{t}",
        "\n# text = x\n1-2\tim\t_\n1.1\te\t_\n",
        ("--columns", "_,word,tag"),
    ),
}


COMMENTED = (
    *("GermEval", "comments", "comments of four words", "MultiCoNER", "a mark and a name"),
    "ranges without CoNLL-U's columns",
)


@pytest.mark.parametrize("name", FORMS)
def test_columns(name, tmp_path, capsys):
    line, between, options = FORMS[name]
    found = prepared_sentences(tmp_path, write(tmp_path / "x.txt", line, between=between), *options)
    assert [(words.translate(DIGITS), tags) for words, tags in found] == WANTED
    printed = capsys.readouterr().out
    assert "spans: IOB2, turned into BIOES\n" in printed
    assert (
        "held out: a tenth of the sentences for each of valid and test (--split-seed 1)" in printed
    )
    assert ("document lines left out: 39" in printed) == (name in ("CoNLL-2003", "bare"))
    assert ("comments left out: 39" in printed) == (name in COMMENTED)


@pytest.mark.parametrize(
    ("reader", "write", "names"),
    [
        (conll03, write_conll03, ("train.txt", "valid.txt", "test.txt")),
        (pos, write_pos, [f"en_ewt-ud-{name}.conllu" for name in ("train", "dev", "test")]),
    ],
)
def test_same_result_as_the_recipes(reader, write, names, tmp_path):
    """Words, spelling and tags are equal byte for byte, also from CoNLL-U by default."""
    raw = write(tmp_path / "raw")
    assert reader.main(["--raw", str(raw), "--out", str(tmp_path / "theirs")]) == 0
    files = zip(("--train", "--valid", "--test"), (raw / name for name in names), strict=True)
    options = [word for pair in files for word in pair]
    assert prepare(*options, "--out", tmp_path / "ours") == 0
    theirs, ours = (tmp_path / name / "data-bin" for name in ("theirs", "ours"))
    for part in ("input0", "label", "spelling"):
        for file in (theirs / part).iterdir():
            assert file.read_bytes() == (ours / part / file.name).read_bytes(), file


TAGS = {
    "IOB1": ["I-A I-A B-A O I-C O I-A I-C", "I-A I-A"],
    "IOB2": ["B-A I-A B-A O B-C O B-A B-C", "B-A I-A"],
    "BIOES": ["B-A E-A S-A O S-C O S-A S-C", "B-A E-A"],
    "BILOU": ["B-A L-A U-A O U-C O U-A U-C", "B-A L-A"],
    "BMES": ["B-A E-A S-A O S-C O S-A S-C", "B-A E-A", "B-C M-C E-C"],
}


@pytest.mark.parametrize("scheme", TAGS)
def test_schemes(scheme):
    rows = [row.split() for row in TAGS[scheme]]
    assert find_scheme(rows) == scheme
    found = [" ".join(as_bioes(row)) for row in rows]
    assert found[:2] == TAGS["BIOES"]
    assert found[2:] in ([], ["B-C I-C E-C"])


@pytest.mark.parametrize(
    ("rows", "scheme"),
    [
        (["NOUN VERB", "X O"], None),
        (["I S B", "NN O"], None),  # parts of speech, of which some look like tags of spans
        (["O O"], None),
        (["I I", "O I"], None),
        (["B I O", "B"], "IOB2"),
        (["B M E S", "S"], "BMES"),  # Chinese words
        (["I-A O", "I-A I-A"], "IOB1"),  # no spans touch
        (["B-A I-A O", "I-A O B-A"], "IOB2"),  # a tagging error
        (["B-A O", "I-A O"], "IOB1"),  # most spans do not begin with B
    ],
)
def test_scheme_detection(rows, scheme):
    assert find_scheme([row.split() for row in rows]) == scheme


def test_orphan_continuation_tags():
    """I-X is an orphan at the start of a sentence, after O, and after another type."""
    rows = ["B-A I-A I-B I-B O I-A", "I-A", "B-A B-A I-A", "B-A O O B-B"]
    assert count_orphan_continuations([row.split() for row in rows]) == 3


def test_segmentation_of_chinese(tmp_path, capsys):
    """Each character is a token, also of raw text; spans without a type become SPAN."""
    letters = [chr(0x4E00 + i) for i in range(40)]
    rows = [[(one, "", tag) for one, tag in zip(letters[i : i + 4], "BMES", strict=True)]
            for i in range(30)]  # fmt: skip
    prepared_sentences(tmp_path, write(tmp_path / "x.txt", lambda n, w, p, t: f"{w}\t{t}", rows))
    printed = capsys.readouterr().out
    assert "spans: BMES, turned into BIOES with the type SPAN" in printed
    assert note(tmp_path / "out", "text") == {
        "tokenizer": "character", "lowercase": True, "zero_digits": True, "language": "en"
    }  # fmt: skip
    assert read_back(tmp_path / "out", "label")[0] == "B-SPAN I-SPAN E-SPAN S-SPAN"
    options = ("--tokenizer", "moses", "--language", "zh")
    prepared_sentences(tmp_path, tmp_path / "x.txt", *options, out="moses")
    text = note(tmp_path / "moses", "text")
    assert (text["tokenizer"], text["language"]) == ("moses", "zh")


def test_spaces_inside_words(tmp_path):
    """Tabs separate columns; a word may contain spaces, no-break spaces and line separators."""
    extra = [[("New York", "", "B-L"), ("10\u00a0000", "", "O"), ("a\x85b\u2028c", "", "O")]]
    rows = [*extra, *ROWS]
    file = write(tmp_path / "x.txt", lambda n, w, p, t: f"{w}\t{t}", rows)
    words, tags = next(
        pair for pair in prepared_sentences(tmp_path, file) if pair[0].startswith("new_york")
    )
    assert words == "new_york 00_000 a_b_c"
    assert tags == "S-L O O"
    kept = [json.loads(line)["words"] for path in (tmp_path / "out/data-bin/original").iterdir()
            for line in path.read_text().split("\n") if line]  # fmt: skip
    assert ["New York", "10\u00a0000", "a\x85b\u2028c"] in kept
    rows = [[("10\u00a0000", "", "B-L"), ("#", "", "O")], *ROWS]
    file = write(tmp_path / "y.txt", lambda n, w, p, t: f"{w} {t}", rows)
    assert ("00_000 #", "S-L O") in prepared_sentences(tmp_path, file, out="y")


@pytest.mark.parametrize("header", ["word\ttag\n", "TOKEN\tNER\n\n"])
def test_a_header_is_left_out(header, tmp_path, capsys):
    file = write(tmp_path / "x.txt", lambda n, w, p, t: f"{w}\t{t}")
    file.write_text(header + file.read_text())
    assert len(prepared_sentences(tmp_path, file)) == len(WANTED)
    printed = capsys.readouterr().out
    assert "train: a header left out: 1\n" in printed
    assert "spans: IOB2" in printed


def test_a_hash_sign_may_be_a_word(tmp_path, capsys):
    """Tweets have such words, and the Penn Treebank has a tag for #."""
    for number, tag in enumerate("O#"):
        others = [[(w, p, p) for w, p, _ in row] for row in ROWS] if tag == "#" else ROWS
        rows = [[("#", "", tag), ("5", "", others[0][0][2])], *others]
        file = write(tmp_path / f"{number}.txt", lambda n, w, p, t: f"{w}\t{t}", rows)
        assert ("# 0", f"{tag} ") in [
            (words, tags[:2]) for words, tags in prepared_sentences(tmp_path, file, out=str(number))
        ]
    assert "left out" not in capsys.readouterr().out


def test_an_ideographic_space_is_a_word(tmp_path):
    for number, between in enumerate("\t "):
        rows = [[("\u56fd", "", "O"), ("\u3000", "", "O"), ("a", "", "B-L")], *ROWS]
        file = write(tmp_path / f"{number}.txt", lambda n, w, p, t, b=between: f"{w}{b}{t}", rows)
        assert ("\u56fd _ a", "O O S-L") in prepared_sentences(tmp_path, file, out=str(number))


@pytest.mark.parametrize("split", ["train", "test"])
def test_mixed_tags_of_spans_and_others(split, tmp_path, capsys):
    """Other tags among those of spans would silently prevent the conversion to BIOES."""
    good, bad = ([[("x", "", one), ("y", "", "B-L")], *ROWS] for one in ("O", "0"))
    files = {"train": good, split: bad}
    options = [
        word
        for name, rows in files.items()
        for word in (
            f"--{name}",
            write(tmp_path / f"{name}.txt", lambda n, w, p, t: f"{w} {t}", rows),
        )
    ]
    error = fails(capsys, tmp_path, *options)
    assert f"{split}.txt: the sentence from line 1 on has the tag '0', but other tags" in error
    assert ("or leave out --test" in error) == (split == "test")


def test_other_symbols_for_outside(tmp_path, capsys):
    rows = [[(w, p, "_" if t == "O" else t) for w, p, t in row] for row in ROWS]
    file = write(tmp_path / "x.txt", lambda n, w, p, t: f"{w} {t}", rows)
    assert "has the tag '_', but other tags mark spans" in fails(capsys, tmp_path, "--train", file)


def test_a_file_with_other_columns(tmp_path, capsys):
    files = [
        write(
            tmp_path / f"{name}.txt",
            lambda n, w, p, t, k=k: f"{w} {p} c{k}{n % 3}"[: 99 if k else -3],
        )
        for k, name in enumerate(("test", "train"))
    ]
    error = fails(capsys, tmp_path, "--test", files[0], "--train", files[1])
    assert "test.txt: no tag, such as '" in error
    assert "is one of --train (c10, c11, c12); correct them" in error


LONG = "".join(f"word{i} O\n" for i in range(2001))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "a\tO\nb\tB-X\nc\n",
            (),
            "x.txt, line 3 has 1 column, but most lines",
        ),
        ("a b\tO\nb\tB-X\nc d\tO\td\n", (), "line 3 has 3 columns, but most lines have 2"),
        ("a\tO\nb\t\n", (), "x.txt, line 2 has no tag in column 2; write one, or choose other"),
        ("a\tNN\nb\t\u3000\n", (), "x.txt, line 2 has no tag in column 2"),
        ("a\n\nb\n", (), "x.txt has a single column; write a word and its tag in each line"),
        ('{"tokens": ["a"], "tags": ["O"]}\n', (), "x.txt has JSON objects; write a word and its"),
        ("# a\n\n-DOCSTART-\n", (), "x.txt has no line with a word and its tag"),
        ("a <pad>\nb O\n", (), "x.txt, line 1: the tag <pad> is a special symbol of fairseq"),
        (
            "a O\nb B-X\u200b\n",
            (),
            "line 2: the tag 'B-X\u200b' has an invisible character, U+200B",
        ),
        (LONG, (), "x.txt, line 1 starts a sentence of 2001 words; separate sentences by blank"),
        (LONG[: LONG.index("word201 ")], (), "x.txt, line 1 starts a sentence of 201 words; sep"),
        ("a O\nb X\nc X\n", ("--columns", "word,word"), "name one word and one tag, such as"),
        ("a O\nb X\nc X\n", ("--columns", "word,pos,tag"), "--columns has pos; write word, tag"),
        ("a O\nb X\nc X\n", ("--columns", "word,_,tag"), "names 3 columns, but SELF has 2"),
        ("a O\nb X\nc X\n", ("--columns", "word,tag,_,_"), "names 4 columns, but SELF has 2"),
        ("a O\nb X\nc X\n", ("--language", "de"), "--language de is for --tokenizer moses, and"),
        ("a O\nb X\nc X\n\nd O\n", (), "--train has 2 different examples, too few to hold some"),
    ],
)
def test_bad_files(text, options, message, tmp_path, capsys):
    file = tmp_path / "x.txt"
    file.write_text(text, encoding="utf-8")
    error = fails(capsys, tmp_path, "--train", file, *options)
    assert message.replace("SELF", str(file)) in error


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (lambda n, w, p, t: f"{n}\t{w}\t{t}", "words are numbers, such as '1'; choose other --col"),
        (lambda n, w, p, t: f"{t}\t{w}", "different tags of "),
        (lambda n, w, p, t: f"{p}\t{t}", "different words in "),
        (lambda n, w, p, t: f"{w}\t{w}{n}x{p}", "different tags of "),
    ],
)
def test_implausible_columns(line, message, tmp_path, capsys):
    rows = [[(f"{w}{i * n % 101}", p, t) for n, (w, p, t) in enumerate(row)]
            for i, row in enumerate(sentences(200))]  # fmt: skip
    error = fails(capsys, tmp_path, "--train", write(tmp_path / "x.txt", line, rows))
    assert message in error
    assert "choose other --columns, such as _,word,tag" in error
