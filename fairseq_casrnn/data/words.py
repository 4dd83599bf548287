"""Words of a text, as the classification and tagging recipes and their commands split it."""

from __future__ import annotations

import functools
import re

BYTE_ORDER_MARK = "\ufeff"
ASCII_SPACE = re.compile(r"[ \t\r\n\f\v]+")
CLITIC = re.compile(r"(?<=\w)('s|'ve|n't|'re|'d|'ll|'m)\b", re.IGNORECASE)
TOKENIZERS = ("space", "whitespace", "clitics", "moses", "penn", "character")
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
PENN_QUOTES = re.compile(r"(?:^|(?<=\s))(``|'')(?=\s|$)")
QUOTE = '"'
TYPOGRAPHIC = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})
# A full stop in front of a capital, but not that of a title or of an abbreviation like U.S.
TITLES = (
    *("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "Gen", "Rev", "Sen", "Rep", "Gov", "Jr", "Sr"),
    *("Inc", "Co", "Corp", "Bros", "vs"),
)
SENTENCE_END = re.compile(
    "".join(rf"(?<!\b{title})" for title in TITLES) + r"(?<=[^\s.]{2})([.!?])\s+(?=[A-Z\"(])"
)


def words(
    line: str, tokenizer: str = "space", lowercase: bool = False, language: str = "en"
) -> list[str]:
    """The words of a line, without the byte-order marks that it may hold.

    Args:
        line: text.
        tokenizer: ``space`` splits at ASCII white space alone (no-break spaces occur inside words
            of the Stanford trees), ``whitespace`` at any, as ``fairseq-preprocess`` does,
            ``clitics`` also before 's, n't, 're and their like (as Kim's ``clean_str`` does),
            ``moses`` is Moses' tokenizer, without XML escapes, which word vectors do not know,
            ``penn`` is that of the Penn Treebank, which nearly always leaves text as it is that is
            split already, ``character`` makes each character but white space a word.
        lowercase: whether to lower-case them.
        language: of the text, for ``moses``.
    """
    line = line.replace(BYTE_ORDER_MARK, "")
    if tokenizer == "moses":
        from .text import moses_tokenize

        line = moses_tokenize(line, language, escape=False)
    elif tokenizer == "clitics":
        line = CLITIC.sub(r" \1", line)
    elif tokenizer == "penn":
        line = " ".join(penn_words(line))
    line = line.lower() if lowercase else line
    if tokenizer == "whitespace":
        return line.split()
    if tokenizer == "character":
        return [character for character in line if not character.isspace()]
    return [word for word in ASCII_SPACE.split(line) if word]


def normalised(
    sentence: list[str], lowercase: bool = False, zero_digits: bool = False
) -> list[str]:
    """Words in the form that has an embedding: in lower case, every digit a 0."""
    if lowercase:
        sentence = [word.lower() for word in sentence]
    return [re.sub("[0-9]", "0", word) for word in sentence] if zero_digits else sentence


def unescaped(leaf: str) -> str:
    """The word of a leaf of a tree of the Penn Treebank, where brackets and slashes are escaped."""
    return ESCAPES.get(leaf, leaf).replace("\\/", "/").replace("\\*", "*")


def penn_words(line: str) -> list[str]:
    """The words of a line by the conventions of the Penn Treebank: do n't, `` yes '', $ 5 , …"""
    treebank = treebank_tokenizer()
    line = " ".join(line.split())  # NLTK's patterns take quadratic time for long white space
    line = SENTENCE_END.sub(r" \1 ", line.translate(TYPOGRAPHIC))
    found: list[str] = []
    for piece in PENN_QUOTES.split(line):
        found += [piece] if piece in ("``", "''") else treebank.tokenize(piece)
    return found


def with_plain_quote(dictionary, symbol: str) -> str:
    """``symbol``, with ' and " in place of ’ and “ unless the dictionary knows it."""
    return symbol if symbol in dictionary else symbol.translate(TYPOGRAPHIC)


def as_written(found: list[str], line: str) -> list[str]:
    """The words that :func:`penn_words` found in ``line`` with the characters that they have there.

    It parts words and exchanges quotation marks, but leaves no character out.
    """
    text, place, written = "".join(line.split()), 0, []
    for word in found:
        size = len(word)
        if word in ("``", "''") and text[place : place + 2] not in ("``", "''"):
            size = 1
        written.append(text[place : place + size])
        place += size
    return written if place == len(text) and all(written) else found


@functools.cache
def treebank_tokenizer():
    """NLTK's; importing it takes a second."""
    from nltk.tokenize import NLTKWordTokenizer

    return NLTKWordTokenizer()
