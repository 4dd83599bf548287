"""An n-best list with its features and references: the input of tuning and applying weights."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.bleu import has_bpe_units
from fairseq_casrnn.reranking.mert import NBestArrays, bleu_counts, pad
from fairseq_casrnn.reranking.nbest import (
    NBest,
    ScoreFile,
    join_subwords,
    read_nbest,
    read_scores,
)


@dataclass
class RerankingProblem:
    """An n-best list for reranking.

    The features are the list's own score, the score of each file, and the length in words.

    Attributes:
        texts: hypotheses of each sentence, as words.
        references: reference of each sentence, or None.
        lists: features and BLEU counts; the counts are zero without references.
        models: model of each file of scores; "" if the file does not name it.
    """

    texts: list[list[str]]
    references: list[str] | None
    lists: NBestArrays
    models: list[str]

    @property
    def baseline(self) -> np.ndarray:
        """Weights ``(F,)`` with which only the list's own score counts."""
        return np.eye(self.lists.features.shape[-1])[0]

    def chosen(self, weights: np.ndarray) -> list[str]:
        """The best hypotheses under ``weights``."""
        choice = self.lists.choose(weights)
        return [texts[k] for texts, k in zip(self.texts, choice, strict=True)]


def features(
    nbest: NBest, texts: list[list[str]], files: Sequence[ScoreFile], sums: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Features ``(N, K, F)`` and the mask ``(N, K)``.

    Args:
        nbest: the list.
        texts: its hypotheses, as words.
        files: scores of further models.
        sums: use the log-probability of a sentence, not the mean over its tokens.
    """
    ends = np.cumsum([len(row) for row in texts])
    columns: list[Sequence] = [nbest.scores]
    for file in files:
        scores = np.array(file.scores)
        columns.append(np.split(scores * file.tokens if sums else scores, ends[:-1]))
    columns.append([[len(text.split()) for text in row] for row in texts])
    return pad([np.array(sentence).T for sentence in zip(*columns, strict=True)])


def load(
    args: argparse.Namespace, join: bool, sums: bool, needs_references: bool
) -> RerankingProblem:
    """Read the list, the files of scores and the references that ``args`` name.

    Raises:
        UserError: a malformed file; files that do not belong together.
    """
    nbest = read_nbest(args.nbest)
    files = [read_scores(path, nbest) for path in args.scores]
    texts = nbest.hypotheses
    if not join and any(map(has_bpe_units, texts)):
        raise UserError(
            f"{args.nbest} has BPE units, but BLEU needs words; tune with --join-subwords"
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
    return RerankingProblem(texts, references, NBestArrays(table, mask, counts), models)


def find_references(path: Path | None, nbest: NBest, join: bool, needed: bool) -> list[str] | None:
    """Lines of ``path``, by default the list's T lines; None without any if not ``needed``."""
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
            f"{path} has BPE units, but BLEU needs words; give the references before BPE"
        )
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of both commands."""
    parser.add_argument(
        "--nbest", required=True, type=Path, help="n-best list from fairseq-generate"
    )
    parser.add_argument(
        "--scores", nargs="*", default=[], type=Path, help="score files from casrnn rerank score"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        help="tokenised references, one per line (default: the list's T lines, in which words "
        "that are not in the dictionary are marked <<unk>>)",
    )
