"""How fairseq reads text with this package: line ends, byte-order marks and special symbols."""

import pytest
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.data import Dictionary, data_utils
from fairseq.tokenizer import tokenize_line

from fairseq_casrnn.errors import UserError

TEXT = "\ufeffa b\rc d\ne f\u2028 g\r\n\nh i".encode()
LINES = ["a b c d", "e f g", "", "h i"]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    return tmp_path / "text"


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_binarising(text, tmp_path, workers):
    """Any number of processes gives the same lines."""
    dictionary = Dictionary()
    Dictionary.add_file_to_dictionary(str(text), dictionary, tokenize_line, workers)
    counts = dict(zip(dictionary.symbols, dictionary.count, strict=True))
    assert counts == dict.fromkeys("abcdefghi", 1) | {"</s>": 5, "<s>": 1, "<pad>": 1, "<unk>": 1}
    prefix = str(tmp_path / "out")
    binarizer = VocabularyDatasetBinarizer(dictionary)
    summary = FileBinarizer.multiprocess_dataset(
        str(text), "mmap", binarizer, prefix, vocab_size=len(dictionary), num_workers=workers
    )
    found = data_utils.load_indexed_dataset(prefix, dictionary)
    assert [dictionary.string(tokens) for tokens in found] == LINES
    assert (summary.num_seq, summary.num_tok, summary.num_replaced) == (4, 9 + 4, 0)


def test_text_as_data(text):
    dictionary = Dictionary()
    for letter in "abcdefghi":
        dictionary.add_symbol(letter)
    found = data_utils.load_indexed_dataset(str(text), dictionary, "raw")
    assert [dictionary.string(tokens) for tokens in found] == LINES
    text.write_text("a <pad> b\nc </s> d\n<s> e <unk>\n")
    with pytest.raises(
        UserError, match=r"text has words .* \(</s> 1, <pad> 1, <s> 1, first in line"
    ):
        data_utils.load_indexed_dataset(str(text), dictionary, "raw")


def test_dictionary(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_bytes("\ufeffa 3\r\nb\u2028 2\n".encode())
    dictionary = Dictionary.load(str(path))
    assert dictionary.symbols[4:] == ["a", "b\u2028"]
    path.write_bytes(b"a 1\n\xff 1\n")
    with pytest.raises(UserError, match=r"dict\.txt, line 2 is not valid UTF-8"):
        Dictionary.load(str(path))
    path.write_text(f"a {10**30}\n")
    with pytest.raises(UserError, match=r"dict\.txt has a count beyond 64 bits; use the"):
        Dictionary.load(str(path))
