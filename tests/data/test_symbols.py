"""Words in a text that look like fairseq's special symbols."""

import pytest
from fairseq.data import Dictionary, data_utils
from labelled_corpora import note, read_back, run, write_trec
from tagged_corpora import write_conll03

from fairseq_casrnn.data import symbols
from fairseq_casrnn.data.corpora import conll03, monolingual, trec
from fairseq_casrnn.errors import UserError


def test_escaping_of_special_symbols():
    words = ["<s>", "<pad>", "</s>", "<unk>", "<pad>x", "&lt;", "a"]
    expected = ["&lt;s&gt;", "&lt;pad&gt;", "&lt;/s&gt;", "<unk>", "<pad>x", "&lt;", "a"]
    assert symbols.escape(words) == expected
    assert symbols.escape_line(" ".join(words)) == " ".join(expected)
    assert symbols.count("<pad> <pad> a</s> <s>") == {"<pad>": 2, "<s>": 1}


def test_positions_of_special_symbols():
    symbols.check_symbols(["a <unk>", "<pad>x"], "text")
    with pytest.raises(UserError, match=r"^text has .* \(</s> 2, <pad> 1, first in line 2\)"):
        symbols.check_symbols(["a", "</s> b </s>", "<pad>"], "text")


ESCAPED = "words that are special symbols of fairseq, escaped"


def test_in_a_labelled_corpus(tmp_path):
    raw = write_trec(tmp_path / "raw")
    with open(raw / "train_5500.label", "a") as file:
        file.write("HUM:ind who <pad> </s> is ?\n" * 3)
    out = run(trec, raw, tmp_path / "out", "--valid-size", 10)
    lines = [line for split in ("train", "valid") for line in read_back(out, split=split)]
    assert lines.count("who &lt;pad&gt; &lt;/s&gt; is ?") == 3
    assert note(out)[ESCAPED] == "</s> 3, <pad> 3"


def test_in_a_tagged_corpus(tmp_path):
    raw = write_conll03(tmp_path / "raw")
    with open(raw / "train.txt", "a") as file:
        file.write("\n<pad> <s> B-NP O\n</s> NN B-NP O\n")
    out = run(conll03, raw, tmp_path / "out", "--column", "pos")
    assert read_back(out)[-1] == "&lt;pad&gt; &lt;/s&gt;"
    assert read_back(out, "label")[-1] == "&lt;s&gt; NN"
    assert note(out)[ESCAPED] == "</s> 1, <pad> 1, <s> 1"


def test_in_a_text_for_language_models(tmp_path, capsys):
    raw = tmp_path / "raw"
    raw.mkdir()
    for split in ("train", "valid", "test"):
        (raw / f"{split}.txt").write_text("a <pad> b\rx\nc </s> d <unk>\n<s> e\n")
    command = ["ptb", "--raw", str(raw), "--out", str(tmp_path / "out"), "--any-size"]
    assert monolingual.main(command) == 0
    assert f"train: {ESCAPED}: </s> 1, <pad> 1, <s> 1\n" in capsys.readouterr().out
    data = tmp_path / "out" / "data-bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    found = data_utils.load_indexed_dataset(str(data / "test"), dictionary)
    assert [len(tokens) for tokens in found] == [5, 5, 3]
    # the end of the line
    assert all(int(tokens.le(dictionary.eos()).sum()) == 1 for tokens in found)
