"""Splitting of text into words."""

import pytest

from fairseq_casrnn.data.words import unescaped, words


@pytest.mark.parametrize(
    ("line", "tokenizer", "lower", "expected"),
    [
        ("  It's\tOK\u00a0now ", "space", False, ["It's", "OK\u00a0now"]),
        ("It's\u00a0OK\u3000NOW \x85", "whitespace", True, ["it's", "ok", "now"]),
        ("It's what you'd DON'T", "clitics", True, ["it", "'s", "what", "you", "'d", "do", "n't"]),
        ("It's OK.", "moses", True, ["it", "'s", "ok", "."]),
        ("", "space", True, []),
        (
            "I don't (he said)... OK?",
            "penn",
            True,
            ["i", "do", "n't", "(", "he", "said", ")", "...", "ok", "?"],
        ),
        (
            "A man isn’t “here” in the U.S. now",
            "penn",
            False,
            ["A", "man", "is", "n't", "``", "here", "''", "in", "the", "U.S.", "now"],
        ),
        (
            "Mr. Ed left. He's gone.",
            "penn",
            False,
            ["Mr.", "Ed", "left", ".", "He", "'s", "gone", "."],
        ),
        ("", "penn", True, []),
        ("Gen. Lee met Prof. Ed", "penn", False, ["Gen.", "Lee", "met", "Prof.", "Ed"]),
    ],
)
def test_words(line, tokenizer, lower, expected):
    assert words(line, tokenizer, lower) == expected


def test_leaves_of_trees():
    leaves = ["-LRB-", "-rrb-", "and\\/or", "\\*", "a"]
    assert [unescaped(leaf) for leaf in leaves] == ["(", "-rrb-", "and/or", "*", "a"]


@pytest.mark.parametrize(
    "line",
    [
        "he does n't say `` no '' , but it 's $ 3.50 ( in the U.S. ) .",
        "and '' what '' then ? -- nothing ... `` well",
        "chapters 1-4 are about general info , such as you must buy .",
    ],
)
def test_splitting_is_idempotent(line):
    """Corpora that are already split are read with the rules for raw text."""
    assert words(line, "penn") == line.split()
