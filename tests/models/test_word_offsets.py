"""Offsets of words in the text that they were split from."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairseq_casrnn.data.words import TOKENIZERS, words
from fairseq_casrnn.models.tagger_hub import TaggedWord, TaggerHub, word_offsets

TEXT = st.text(st.sampled_from("ab.,' \u00a0\t-!é中"), max_size=20)


@settings(deadline=None)
@given(TEXT, st.sampled_from(TOKENIZERS))
@example("a ''a", "penn")
def test_offsets_of_words(line, tokenizer):
    found = words(line, tokenizer)
    for word, (begin, end) in zip(found, word_offsets(found, line), strict=True):
        text = line[begin:end]
        assert text == word or (tokenizer, word, text) == ("penn", "``", "''")
    covered = "".join(line[begin:end] for begin, end in word_offsets(found, line))
    assert "".join(covered.split()) == "".join(line.split())


@pytest.mark.parametrize(
    ("line", "split", "shown"),
    [
        ('say "yes" ``', ["say", "``", "yes", "''", "``"], ["say", '"', "yes", '"', "``"]),
        ("a ''a'' ``", ["a", "``", "a", "''", "``"], ["a", "''", "a", "''", "``"]),
        ("\ufeffit was", ["it", "was"], ["it", "was"]),
        ("a &amp; b", ["a", "&", "b"], ["a", "&", "b"]),
        ("ab", ["a", "xyz"], ["a", "b"]),
        ("", ["a"], [""]),
    ],
)
def test_offsets_of_changed_words(line, split, shown):
    assert [line[begin:end] for begin, end in word_offsets(split, line)] == shown


def test_spans_are_in_text_order():
    tags, line = ["S-B", "O", "B-A", "E-A", "S-A"], "0 1 2 3 4"
    words = [TaggedWord(str(n), tag, 0.5, 2 * n, 2 * n + 1) for n, tag in enumerate(tags)]
    found = [(span.type, span.text) for span in TaggerHub.spans_of(None, words, line)]
    assert found == [("B", "0"), ("A", "2 3"), ("A", "4")]
