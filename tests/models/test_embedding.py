"""Word vectors in files of GloVe's format and word2vec's text format."""

import logging

import pytest
import torch

from fairseq_casrnn.data.vector_files import VectorFile, words_with_vectors
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.embedding import build_embedding
from fairseq_casrnn.models.unknown_words import GrowingVocabulary, WordVectors

from .common import PAD, TARGET, build, dictionary, make_task

WORDS = dictionary(8)  # w4 … w7
WORDS.add_symbol(". . .")
WORDS.add_symbol("at")
WORDS.add_symbol("at name@domain.com")
WORDS.add_symbol("3.5")
WORDS.add_symbol("\u2028")
WORDS.add_symbol("naïve")


def load(path, content, dim=3):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return build_embedding(WORDS, dim, str(path)).weight.detach()


def row(weight, word):
    return [round(value, 4) for value in weight[WORDS.index(word)].tolist()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "vectors.txt"


@pytest.mark.parametrize("header", ["", "4 3\n"], ids=["GloVe", "word2vec"])
@pytest.mark.parametrize("ending", ["\n", " \n", "\r\n"], ids=["newline", "space", "CRLF"])
def test_header_and_line_endings(path, header, ending):
    lines = ["w4 1 2 3", "w7 -1e-1 0.5 .25", "unheard 7 7 7", "naïve 4 5 6"]
    weight = load(path, header + "".join(line + ending for line in lines))
    assert row(weight, "w4") == [1, 2, 3]
    assert row(weight, "w7") == [-0.1, 0.5, 0.25]
    assert row(weight, "naïve") == [4, 5, 6]
    assert weight[WORDS.index("w5")].abs().max() <= 0.1
    assert not weight[PAD].any()


def test_capitalised_words_find_lower_case_vectors(path):
    """GloVe's Wikipedia vectors are of this kind; a word's exact spelling is preferred."""
    words = dictionary(4)
    for word in ("Rome", "ROME", "it", "IT", "Paris"):
        words.add_symbol(word)

    def found(content):
        path.write_text(content)
        weight = build_embedding(words, 1, str(path)).weight.flatten()
        return {word: round(float(weight[words.index(word)]), 3) for word in words.symbols[4:]}

    lower = found("rome 1\nit 2\nrome 7\n")
    assert [lower[word] for word in ("Rome", "ROME", "it", "IT")] == [1, 1, 2, 2]
    assert abs(lower["Paris"]) <= 0.1
    cased = found("rome 1\nit 2\nIT 3\n")
    assert (cased["it"], cased["IT"]) == (2, 3)
    assert abs(cased["Rome"]) <= 0.1


def test_vectors_of_single_words(path):
    path.write_text(". . 5 6\nrome 1 2\nbad 1 x\nlong 1 2 3\nrome 7 7\n. 3 4\n")
    found = WordVectors(str(path), 2)
    assert [found.find(word).tolist() for word in ("rome", "Rome", "ROME")] == [[1, 2]] * 3
    assert found.find(".").tolist() == [3, 4]
    assert found.find("paris") is found.find("long") is None
    with pytest.raises(UserError, match=r"vectors\.txt, line of bad: not a word and 2 numbers; c"):
        found.find("bad")
    path.write_text("rome 1 2\nIT 3 4\n")
    assert WordVectors(str(path), 2).find("Rome") is None
    path.write_text("2 2\nrome 1 2\n2 3 4\n")  # word2vec's header is not a vector of the word 2
    assert WordVectors(str(path), 2).find("2").tolist() == [3, 4]
    path.write_text("москва 1 2\nМосква 3 4\n", encoding="utf-8")  # non-ASCII capitals
    assert WordVectors(str(path), 2).find("МОСКВА") is None
    for nothing in ("", "2 2\n"):
        path.write_text(nothing)
        with pytest.raises(UserError, match=r"vectors\.txt has no vector of dimension 2; give a f"):
            WordVectors(str(path), 2)
    for other in ("rome 1\n", "rome 1 2 3\n"):
        path.write_text(other)
        with pytest.raises(UserError, match=r"line 1: vectors of dimension \d, but the embedding"):
            WordVectors(str(path), 2)


def test_words_added_in_several_calls(path):
    path.write_text("rome 1 2\nparis 3 4\nbonn 5 6\n")
    words = dictionary(TARGET)
    table = torch.nn.Embedding(len(words), 2)
    vocabulary, old = GrowingVocabulary(words, table, WordVectors(str(path), 2)), table.weight
    found = []
    for word in ("rome", "paris", "rome"):
        found.append(vocabulary.index(word))
        vocabulary.grow()
    assert vocabulary.index("nowhere") == words.unk()
    assert found == [len(old), len(old) + 1, len(old)]
    assert table.weight.equal(torch.cat([old, torch.tensor([[1.0, 2], [3, 4]])]))


@pytest.mark.parametrize("header", ["", "2 3\n"])
def test_vectors_with_a_byte_order_mark(path, header):
    path.write_text(f"\ufeff{header}rome 1 2 3\nit 4 5 6\n", encoding="utf-8")
    found = WordVectors(str(path), 3)
    assert [found.find(word).tolist() for word in ("rome", "it")] == [[1, 2, 3], [4, 5, 6]]
    words = dictionary(TARGET)
    words.add_symbol("rome")
    weight = build_embedding(words, 3, str(path)).weight
    assert weight[words.index("rome")].tolist() == [1, 2, 3]
    assert VectorFile(path).dim == 3
    assert words_with_vectors(path, {"rome", "paris"}) == {"rome"}


def test_words_with_spaces(path):
    """glove.840B has such words."""
    weight = load(
        path, "at 1 1 1\nat name@domain.com 2 2 2\n. . . 3 3 3\n3.5 4 4 4\n\u2028 5 5 5\n"
    )
    words = ["at", "at name@domain.com", ". . .", "3.5", "\u2028"]
    assert [row(weight, word)[0] for word in words] == [1, 2, 3, 4, 5]


def test_word_with_spaces_in_the_first_line(path):
    assert row(load(path, ". . . 3 3 3\nw4 1 1 1\n"), ". . .") == [3, 3, 3]


def test_the_first_of_duplicate_words_is_used(path):
    weight = load(path, "w4 1 1 1\nw5 2 2 2\nw4 3 3 3\n")
    assert row(weight, "w4") == [1, 1, 1]
    assert row(weight, "w5") == [2, 2, 2]


def test_byte_order_mark_and_blank_lines(path):
    weight = load(path, b"\xef\xbb\xbfw4 1 1 1\n\nw5 2 2 2\n \n")
    assert row(weight, "w4") == [1, 1, 1]
    assert row(weight, "w5") == [2, 2, 2]


def test_last_line_without_newline(path):
    assert row(load(path, "w4 1 1 1\nw5 2 2 2"), "w5") == [2, 2, 2]


@pytest.mark.parametrize(
    ("content", "dim", "message"),
    [
        ("w4 1 2 3 4\nw5 1 2 3 4\n", 3, "line 1: vectors of dimension 4, but the embedding has 3"),
        ("w4\t1\t2\t3\n", 3, "line 1 has no numbers separated by spaces; give a file of word vec"),
        ("² 3\nw4 1 2 3\n", 3, "line 1: vectors of dimension 1, but the embedding has 3"),
        (f"{'9' * 5000} 3\nw4 1 2 3\n", 3, "line 1: vectors of dimension 1, but the embedd"),
        (f"w4 1 2 {'9' * 5000}\n", 3, "line 1: a number is not finite"),
        ("w4 1 2\n", 3, "line 1: vectors of dimension 2, but the embedding has 3"),
        ("5 4\nw4 1 2 3 4\n", 3, "line 1: vectors of dimension 4, but the embedding has 3"),
        ("w4 1 2 3\nw5 1 2\n", 3, "line 2: 2 numbers, separated by spaces, instead of 3"),
        ("w4 1 2 3\nw5\t1\t2\t3\n", 3, "line 2: 0 numbers, separated by spaces, instead of 3"),
        ("else 1 2 3\n", 3, r"has no vector of dimension 3 for any of the dictionary's 10 words"),
        (". . . 1 2 3 4\nw5 1 2 3 4\n", 3, "has no vector of dimension 3"),
        ("", 3, "has no vector of dimension 3"),
        ("w4 1 2 3\nw5 1 x 3\n", 3, "line 2: not a word and 3 numbers; correct or drop the l"),
        (b"w4 1 2 3\n\xff\xfe 1 2 3\n", 3, "line 2 is not valid UTF-8"),
        ("w4 1 2 3\nw5 1 nan 3\n", 3, "line 2: a number is not finite"),
        ("w4 1 2 3\nw5 1 2 -inf\n", 3, "line 2: a number is not finite"),
        ("</s> 1 2 3\n<unk> 1 2 3\n", 3, "for any of the dictionary's 10 words"),
    ],
)
def test_mistakes_name_the_file(path, content, dim, message):
    with pytest.raises(UserError, match=message) as caught:
        load(path, content, dim)
    assert str(path) in str(caught.value)


def test_missing_file(path):
    with pytest.raises(UserError, match=f"cannot read the word vectors {path}: No such file"):
        build_embedding(WORDS, 3, str(path))


def test_the_number_of_found_vectors_is_logged(path, caplog):
    caplog.set_level(logging.INFO)
    load(path, "w4 1 1 1\nw5 2 2 2\nw4 3 3 3\nelse 1 1 1\n")
    assert f"{path}: vectors for 2 of {len(WORDS) - WORDS.nspecial} types" in caplog.text


def test_warning_of_lines_with_too_many_numbers(path, caplog):
    """Such a line could be of a word with spaces, but the dictionary has the word without them."""
    weight = load(path, "w4 1 1 1\nw5 0 2 2 2\nelse 0 2 2 2\nat name 3 3 3\nw6 0 0 4 4 4\n")
    (warning,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert warning == f"{path}, line 2 and 1 more: more than 3 numbers; skipped"
    assert weight[WORDS.index("w5")].abs().max() <= 0.1


def test_special_symbols_and_fillers_are_not_counted(path, caplog):
    """Special symbols, which word2vec's files have, and fairseq's filler words do not count."""
    caplog.set_level(logging.INFO)
    words = dictionary(6)  # w4, w5
    for filler in ("madeupword0000", "madeupword0001"):
        words.add_symbol(filler, 0)
    path.write_text("</s> 7 7 7\nw5 1 1 1\nmadeupword0000 1 1 1\n")
    weight = build_embedding(words, 3, str(path)).weight
    assert "vectors for 1 of 2 types (50.0 %)" in caplog.text
    assert weight[words.eos()].tolist() == [7, 7, 7]


@pytest.mark.parametrize("frozen", [False, True])
def test_models_start_from_the_vectors(tmp_path, frozen):
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("w5 " + " ".join(["1"] * 16) + "\n")
    target.write_text("w6 " + " ".join(["2"] * 16) + "\n")
    model = build(
        "cas_lstm_tiny",
        encoder_embed_path=str(source),
        decoder_embed_path=str(target),
        encoder_freeze_embed=frozen,
        decoder_freeze_embed=frozen,
    )
    for part, index, value in ((model.encoder, 5, 1.0), (model.decoder, 6, 2.0)):
        assert part.embed_tokens.weight[index].equal(torch.full((16,), value))
        assert part.embed_tokens.weight[4].abs().max() <= 0.1
        assert part.embed_tokens.weight.requires_grad is not frozen


def test_shared_embeddings_start_from_the_encoders_vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("w5 " + " ".join(["1"] * 16) + "\n")
    task = make_task(TARGET, TARGET)
    model = build("cas_lstm_tiny", task, share_all_embeddings=True, encoder_embed_path=str(path))
    assert model.decoder.embed_tokens.weight[5].equal(torch.ones(16))
