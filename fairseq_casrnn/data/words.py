"""Tokenizers.

``casrnn export`` copies this file beside an exported model: it imports nothing of this package.
"""

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
#: A full stop at the end of the last word, but not the last of several dots.
LAST_STOP = re.compile(r"(?<=[^\s.])\.$")
TYPOGRAPHIC = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})
# A full stop before a capital, but not after a title or an abbreviation such as U.S.
TITLES = (
    *("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "Gen", "Rev", "Sen", "Rep", "Gov", "Jr", "Sr"),
    *("Inc", "Co", "Corp", "Bros", "vs"),
)
SENTENCE_END = re.compile(  # begins with the stop: a lookbehind at every character is slow
    r"([.!?])"
    + "".join(rf"(?<!\b{title}.)" for title in TITLES)
    + r"(?<=[^\s.]{2}.)\s+(?=[A-Z\"(])"
)


def words(
    line: str, tokenizer: str = "space", lowercase: bool = False, language: str = "en"
) -> list[str]:
    """The words of a line, without byte-order marks.

    Args:
        line: text.
        tokenizer: ``space`` splits at ASCII white space only (words of the Stanford trees may
            contain no-break spaces); ``whitespace`` splits at any white space, like
            ``fairseq-preprocess``; ``clitics`` also splits before 's, n't, 're and similar, like
            Kim's ``clean_str``; ``moses`` is Moses' tokenizer without XML escapes, which word
            vectors do not have; ``penn`` is the Penn Treebank's, which rarely changes tokenised
            text; ``character`` makes each character a word, except white space.
        lowercase: whether to lower-case the words.
        language: language of the text, for ``moses``.
    """
    line = line.replace(BYTE_ORDER_MARK, "")
    if tokenizer == "moses":
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


def words_to_show(line: str, tokenizer: str, known, language: str = "en") -> list[str]:
    """The words of a line as a tagger shows them, in their original case.

    With the ``penn`` tokenizer, quotation marks stay as written unless the training text only has
    the treebank's `` and ''.

    Args:
        line, tokenizer, language: as for :func:`words`.
        known: the dictionary, for ``in``.
    """
    found = words(line, tokenizer, language=language)
    if tokenizer == "penn" and (QUOTE in known or "``" not in known):
        return as_written(found, line)
    return found


@functools.cache
def moses(language: str):
    """Moses' tokenizer."""
    from sacremoses import MosesTokenizer

    return MosesTokenizer(lang=language)


def moses_tokenize(line: str, language: str, escape: bool = True) -> str:
    """Tokenise a line like Moses' ``tokenizer.perl -l LANG`` (hyphens kept, XML escaped).

    Without ``escape``, like ``-no-escape``: apostrophes and quotes stay as they are.

    sacremoses keeps the full stop of a final word that may be an abbreviation ("the u.s."). Moses
    has split it off since 2014, as in the papers' IWSLT14 ("the u.s .").
    """
    options = {"aggressive_dash_splits": False, "return_str": True, "escape": escape}
    return LAST_STOP.sub(" .", moses(language).tokenize(line, **options))


def chinese_characters(line: str) -> str:
    """Chinese text as space-separated characters, in lower case.

    Words in Latin letters and numbers ("e-mail", "3.14") stay whole.
    """
    return " ".join(chinese_token().findall(line.lower()))


@functools.cache
def chinese_token():
    """A word in other letters, a number, or a single character."""
    import regex  # an export of other models does not need it

    letters = r"[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}]]"
    return regex.compile(rf"(?V1){letters}+(?:[.,:'’\-]{letters}+)*|\S")


def normalised(
    sentence: list[str], lowercase: bool = False, zero_digits: bool = False
) -> list[str]:
    """The words as they are looked up: in lower case and with every digit replaced by 0."""
    if lowercase:
        sentence = [word.lower() for word in sentence]
    return [re.sub("[0-9]", "0", word) for word in sentence] if zero_digits else sentence


def unescaped(leaf: str) -> str:
    """The word of a leaf in a Penn Treebank tree, in which brackets and slashes are escaped."""
    return ESCAPES.get(leaf, leaf).replace("\\/", "/").replace("\\*", "*")


def leaves(parse: str) -> str:
    """The words of a binary parse, separated by spaces."""
    pieces = ASCII_SPACE.split(parse)
    return " ".join(unescaped(piece) for piece in pieces if piece not in ("", "(", ")"))


def penn_words(line: str) -> list[str]:
    """The words of a line in the conventions of the Penn Treebank: do n't, `` yes '', $ 5 , …"""
    treebank = treebank_tokenizer()
    line = " ".join(line.split())  # NLTK's patterns are quadratic in the length of white space
    line = SENTENCE_END.sub(r" \1 ", line.translate(TYPOGRAPHIC))
    found: list[str] = []
    for piece in PENN_QUOTES.split(line):
        found += [piece] if piece in ("``", "''") else treebank.tokenize(piece)
    return found


def with_plain_quote(dictionary, symbol: str) -> str:
    """``symbol``, with ' and " in place of ’ and “ unless the dictionary knows it."""
    return symbol if symbol in dictionary else symbol.translate(TYPOGRAPHIC)


def as_written(found: list[str], line: str) -> list[str]:
    """The words that :func:`penn_words` found in ``line``, with their original quotation marks.

    The tokenizer splits words and replaces quotation marks, but drops no characters.
    """
    text, position, written = "".join(line.split()), 0, []
    for word in found:
        size = len(word)
        if word in ("``", "''") and text[position : position + 2] not in ("``", "''"):
            size = 1
        written.append(text[position : position + size])
        position += size
    return written if position == len(text) and all(written) else found


@functools.cache
def treebank_tokenizer():
    """NLTK's tokenizer, imported here because that takes a second."""
    from nltk.tokenize import NLTKWordTokenizer

    return NLTKWordTokenizer()
