"""Words of a text, as the classification recipes and ``casrnn predict`` split it."""

from __future__ import annotations

import re

ASCII_SPACE = re.compile(r"[ \t\r\n\f\v]+")
CLITIC = re.compile(r"(?<=\w)('s|'ve|n't|'re|'d|'ll|'m)\b", re.IGNORECASE)
TOKENIZERS = ("space", "clitics", "moses")


def words(line: str, tokenizer: str = "space", lowercase: bool = False) -> list[str]:
    """The words of a line.

    Args:
        line: text.
        tokenizer: ``space`` splits at ASCII white space alone (no-break spaces occur inside words
            of the Stanford trees), ``clitics`` also before 's, n't, 're and their like (as Kim's
            ``clean_str`` does), ``moses`` is Moses' tokenizer for English,
            without XML escapes, which word vectors do not know.
        lowercase: whether to lower-case them.
    """
    if tokenizer == "moses":
        from .text import moses_tokenize

        line = moses_tokenize(line, "en", escape=False)
    elif tokenizer == "clitics":
        line = CLITIC.sub(r" \1", line)
    line = line.lower() if lowercase else line
    return [word for word in ASCII_SPACE.split(line) if word]
