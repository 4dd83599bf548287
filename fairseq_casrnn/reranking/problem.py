"""An n-best list with its features, as tuning and applying weights both need it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.bleu import has_bpe_units
from fairseq_casrnn.reranking.mert import Lists, bleu_counts, pad
from fairseq_casrnn.reranking.nbest import (
    NBest,
    ScoreFile,
    by_sentence,
    join_subwords,
    read_nbest,
    read_scores,
)


@dataclass
class Problem:
    """Hypotheses as words, references (None without) and what tuning needs of both.

    The features are the list's own score, that of each file of scores, and the length in words.
    Without references the counts of ``lists`` are zero.
    """

    texts: list[list[str]]
    references: list[str] | None
    lists: Lists
    models: list[str]  # of the files of scores, as far as they say

    @property
    def baseline(self) -> np.ndarray:
        """Weights ``(F,)`` that leave the list's own score alone."""
        return np.eye(self.lists.features.shape[-1])[0]

    def chosen(self, weights: np.ndarray) -> list[str]:
        """The best hypotheses under ``weights``."""
        choice = self.lists.choose(weights)
        return [texts[k] for texts, k in zip(self.texts, choice, strict=True)]


def features(
    nbest: NBest, texts: list[list[str]], files: Sequence[ScoreFile], sums: bool
) -> tuple[np.ndarray, np.ndarray]:
    """``(N, K, F)`` features and the mask ``(N, K)``.

    Args:
        nbest: the list.
        texts: its hypotheses, as words.
        files: further models' scores.
        sums: take a sentence's log-probability instead of the mean of a token.
    """
    columns = [nbest.scores]
    for file in files:
        scores = np.array(file.scores)
        columns.append(by_sentence(scores * file.tokens if sums else scores, nbest))
    columns.append([[len(text.split()) for text in row] for row in texts])
    rows = [np.array(columns_of_one).T for columns_of_one in zip(*columns, strict=True)]
    return pad(rows)


def load(args: argparse.Namespace, join: bool, sums: bool, needs_references: bool) -> Problem:
    """Read the list, the files of scores and the references that ``args`` name.

    Raises:
        UserError: a malformed file; files that do not belong together.
    """
    nbest = read_nbest(args.nbest)
    files = [read_scores(path, nbest) for path in args.scores]
    texts = nbest.hypotheses
    if not join and any(map(has_bpe_units, texts)):
        raise UserError(
            f"{args.nbest} holds BPE units, and BLEU is of words; tune with --join-subwords"
        )
    if join:
        texts = [[join_subwords(text) for text in row] for row in texts]
    table, mask = features(nbest, texts, files, sums)
    references = find_references(args.reference, nbest, join, needs_references)
    if references is None:
        counts = np.zeros((*mask.shape, 10), np.int64)
    else:
        counts = bleu_counts(texts, references)
    models = [str(file.header.get("model", "")) for file in files]
    return Problem(texts, references, Lists(table, mask, counts), models)


def find_references(path: Path | None, nbest: NBest, join: bool, needed: bool) -> list[str] | None:
    """Lines of ``path``, or of the list's own T lines; None if it has none and none is needed."""
    if path is None:
        if not nbest.references and not needed:
            return None
        lines = nbest.reference_lines()
        return [join_subwords(line) for line in lines] if join else lines
    lines = read_lines(path)
    if len(lines) != len(nbest.hypotheses):
        raise UserError(
            f"{path} has {len(lines)} lines but {nbest.path} has {len(nbest.hypotheses)} "
            "sentences; give the references of that list"
        )
    if has_bpe_units(lines):
        raise UserError(
            f"{path} holds BPE units, and BLEU is of words; give the references before BPE"
        )
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of both commands."""
    parser.add_argument("--nbest", required=True, type=Path, help="list of fairseq-generate")
    parser.add_argument(
        "--scores", nargs="*", default=[], type=Path, help="files of casrnn rerank score"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        help="tokenised references, a line each (default: the list's T lines, in which words "
        "out of the dictionary are marked <<unk>>)",
    )
