"""Reads n-best lists of ``fairseq-generate --nbest`` and files of scores for them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.data.values import natural, parse_json
from fairseq_casrnn.errors import UserError, quoted

MAX_SCORE = 1e30  # weighted sums of larger scores could overflow
_LINE = re.compile(r"([STH])-")
_LINE_FORMATS = {
    "S": (re.compile(r"S-([^\t]+)\t(.*)"), "S-NUMBER<TAB>SOURCE"),
    "T": (re.compile(r"T-([^\t]+)\t(.*)"), "T-NUMBER<TAB>REFERENCE"),
    "H": (re.compile(r"H-([^\t]+)\t([^\t]+)\t(.*)"), "H-NUMBER<TAB>SCORE<TAB>HYPOTHESIS"),
}


@dataclass
class NBest:
    """The hypotheses of N sentences, sorted by sentence number.

    Args:
        path: the file.
        digest: hash of its S and H lines; files of scores name the digest of their list.
        hypotheses: the hypotheses of each sentence, in the order of the file.
        scores: their scores as printed, usually the mean log2-probability of a token.
        sources: source sentences by number, as far as there are S lines.
        references: reference sentences by number, as far as there are T lines.
        ordered: whether the sentences of the file are in the order of their numbers.
    """

    path: Path
    digest: str
    hypotheses: list[list[str]]
    scores: list[list[float]]
    sources: dict[int, str]
    references: dict[int, str]
    ordered: bool = True

    def pairs(self) -> list[tuple[str, str]]:
        """(source, hypothesis) of all hypotheses. Raises UserError if a source is missing."""
        self._check_complete(self.sources, "S", "source")
        return [
            (self.sources[number], text)
            for number, texts in enumerate(self.hypotheses)
            for text in texts
        ]

    def reference_lines(self) -> list[str]:
        """References in order. Raises UserError if one is missing."""
        self._check_complete(self.references, "T", "reference")
        return [self.references[number] for number in range(len(self.hypotheses))]

    def _check_complete(self, found: dict[int, str], kind: str, what: str) -> None:
        for number in range(len(self.hypotheses)):
            if number not in found:
                raise UserError(
                    f"{self.path} has no {what} of sentence {number} ({kind}-{number}); generate "
                    "the list again"
                )


def read_nbest(path: Path) -> NBest:
    """Read a list; lines other than S, T and H are ignored.

    Raises:
        UserError: a malformed line, a missing or repeated sentence, or no hypotheses.
    """
    texts: dict[int, list[str]] = {}
    scores: dict[int, list[float]] = {}
    sides: dict[str, dict[int, str]] = {"S": {}, "T": {}}
    digest = hashlib.sha256()
    for count, line in enumerate(read_lines(path, may_be_blank=True), 1):
        if not (kind := _LINE.match(line)):
            continue
        number, *rest = _parse(kind[1], line, path, count)
        if kind[1] == "H":
            scores.setdefault(number, []).append(rest[0])
            texts.setdefault(number, []).append(rest[1])
        elif number in sides[kind[1]]:
            raise UserError(
                f"{path}, line {count} repeats {kind[1]}-{number}; give the output of one "
                "fairseq-generate"
            )
        else:
            sides[kind[1]][number] = rest[0]
        if kind[1] != "T":
            digest.update(f"{line}\n".encode())
    _check_numbers(path, set(texts), set(sides["S"]) | set(sides["T"]))
    order = range(len(texts))
    return NBest(
        path, digest.hexdigest()[:16], [texts[n] for n in order], [scores[n] for n in order],
        sides["S"], sides["T"], list(texts) == sorted(texts),
    )  # fmt: skip


def _parse(kind: str, line: str, path: Path, count: int) -> list:
    form, shape = _LINE_FORMATS[kind]
    found = form.fullmatch(line)
    number = natural(found[1]) if found else None
    if found is None or number is None:
        raise UserError(f"{path}, line {count} is malformed; it should be {shape}")
    rest = list(found.groups()[1:])
    if kind == "H":
        rest[0] = _number(rest[0], path, count)
    return [number, *rest[:-1], rest[-1].strip()]


def _number(text: str, path: Path, count: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) < MAX_SCORE:
        raise UserError(
            f"{path}, line {count}: the score {quoted(text)} is not a number of magnitude below "
            f"{MAX_SCORE:g}; generate or score again"
        )
    return number


def _check_numbers(path: Path, found: set[int], announced: set[int]) -> None:
    if not found:
        raise UserError(
            f"{path} has no hypothesis (H-NUMBER<TAB>SCORE<TAB>…); give the output of "
            "fairseq-generate"
        )
    missing = next(n for n in range(len(found) + 1) if n not in found)
    if missing <= max(found | announced):
        raise UserError(
            f"{path} has no hypothesis of sentence {missing} but of a later one; generate the list "
            "again"
            if missing < max(found)
            else f"{path} ends before the hypotheses of sentence {missing}; generate it again"
        )


def join_subwords(text: str) -> str:
    """Join subword-nmt's units into words, as fairseq's ``--post-process subword_nmt`` does."""
    return f"{text} ".replace("@@ ", "").strip()


def reverse(text: str) -> str:
    """The words in the opposite order."""
    return " ".join(reversed(text.split()))


# --- scores ------------------------------------------------------------------------------------


@dataclass
class ScoreFile:
    """Scores of all hypotheses of a list, in the order of :attr:`NBest.hypotheses`.

    Args:
        path: the file.
        header: the JSON object after ``#`` in its first line; empty without one.
        scores: mean log2-probability of a token.
        tokens: number of tokens, including ``</s>``.
    """

    path: Path
    header: dict[str, object]
    scores: list[float]
    tokens: list[int]


def header_line(header: dict[str, object]) -> str:
    """The first line of a file of scores."""
    return f"# {json.dumps(header, sort_keys=True)}"


def read_scores(path: Path, nbest: NBest) -> ScoreFile:
    """Read the scores for a list: lines SCORE<TAB>TOKENS, or SCORE alone (one token).

    A file without a header, from another program, is only accepted for a list whose sentences are
    in order. ``fairseq-generate`` prints them in the order of its batches, and it would be unclear
    which order the file has.

    Raises:
        UserError: a malformed line, a wrong number of scores, or scores of another list.
    """
    lines = read_lines(path, may_be_blank=True)
    header: dict[str, object] = {}
    skip = 0
    if lines and lines[0].startswith("#"):
        skip = 1
        try:
            header = dict(parse_json(lines[0][1:]))
        except (ValueError, TypeError):
            raise UserError(f"{path}, line 1 is not a JSON object after #; score again") from None
    rows = [_score_row(line, path, n) for n, line in enumerate(lines[skip:], skip + 1)]
    expected = sum(map(len, nbest.hypotheses))
    if len(rows) != expected:
        raise UserError(
            f"{path} has {len(rows)} scores but {nbest.path} has {expected} hypotheses; "
            "score this list"
        )
    if "nbest" not in header and not nbest.ordered:
        raise UserError(
            f"the sentences of {nbest.path} are not in the order of their numbers, so it is "
            f"unclear to which hypotheses the scores of {path} belong; sort the list first (grep "
            "'^[STH]-' LIST | sort -s -t- -k2,2n), and give a score for each of its H lines"
        )
    if header.get("nbest", nbest.digest) != nbest.digest:
        raise UserError(f"{path} has the scores of another list than {nbest.path}; score this list")
    return ScoreFile(path, header, [score for score, _ in rows], [tokens for _, tokens in rows])


def _score_row(line: str, path: Path, count: int) -> tuple[float, int]:
    score, _, tokens = line.partition("\t")
    length = natural(tokens or "1")
    if length is None:
        raise UserError(f"{path}, line {count} is malformed; it should be SCORE<TAB>TOKENS")
    return _number(score, path, count), length
