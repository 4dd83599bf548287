"""Random damage to the content of files."""

import re

from hypothesis import strategies as st

# input that readers often fail on
PIECES = (
    *(b"\xff", b"\0", b"\r", b"\xef\xbb\xbf", b"\t", b" ", b"\n", b"\r\n", b'"', b"'", b":", b"-"),
    *(b"999999999", b"9" * 5000, "²١".encode(), b"-1", b"1e400", b"nan", b"null", b"{}", b"[]"),
    *(b"[" * 3000, b"{" * 3000, b"(" * 3000, b")", b" " * 3000, b"\t" * 3000, b'"\\ud800"'),
    *(b"<pad>", b"</s>", b"\x1b[2J", b"=1+1", b"${oc.env:NONE}", b"!!python/object:x"),
    *("\u2028".encode(), "\u00a0".encode(), "\u202e".encode(), b"\xed\xa0\x80", b"H-", b"B-X"),
)


KINDS = ("change", "cut", "insert", "replace", "replace", "drop", "repeat", "exchange")
WORD = re.compile(rb"[\w.-]+|\S")


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """``content`` after one to three random changes."""
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(KINDS))
        words = list(WORD.finditer(content)) if kind == "replace" else []
        if words:
            word = draw(st.sampled_from(words))
            content = (
                content[: word.start()] + draw(st.sampled_from(PIECES)) + content[word.end() :]
            )
            continue
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        before, after = content[:place], content[place:]
        if kind == "change":
            content = before + bytes([draw(st.integers(0, 255))]) + after[1:]
        elif kind == "cut":
            content = before
        elif kind == "insert":
            content = before + draw(st.sampled_from(PIECES)) + after
        else:
            size = draw(st.integers(1, 40))
            new = {"drop": b"", "repeat": after[:size] * 2}.get(kind)
            content = before + (draw(st.binary(max_size=8)) if new is None else new) + after[size:]
    return content
