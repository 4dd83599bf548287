"""``casrnn rerank apply``: writes the best hypotheses under tuned weights and their BLEU."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairseq_casrnn.data.text import read_bytes
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.bleu import tokenized_metric
from fairseq_casrnn.evaluation.paired import bleu_randomization
from fairseq_casrnn.files import check_writable, write_json, write_text
from fairseq_casrnn.reranking import problem as problems
from fairseq_casrnn.reranking.mert import oracle
from fairseq_casrnn.reranking.tune import summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn rerank apply``."""
    problems.add_arguments(parser)
    parser.add_argument(
        "--weights", required=True, type=Path, help="weights from casrnn rerank tune"
    )
    parser.add_argument(
        "--output", required=True, type=Path, help="output file for the translations"
    )
    parser.add_argument("--json", type=Path, help="output file for the scores")


def run(args: argparse.Namespace) -> None:
    """Write the translations of the best run; print BLEU if there are references.

    Raises:
        UserError: files that are malformed or do not belong together.
    """
    check_writable(args.output, args.json)
    tuned = read_weights(args.weights, len(args.scores))
    problem = problems.load(args, tuned["join_subwords"], tuned["sums"], needs_references=False)
    check_models(tuned["models"], problem.models, args)
    runs = [np.array(run["weights"], float) for run in tuned["runs"]]
    best = max(range(len(runs)), key=lambda index: tuned["runs"][index]["bleu"])
    if args.json is not None and problem.references is None:
        raise UserError(
            f"--json needs references for BLEU, but {args.nbest} has none; give --reference"
        )
    chosen = problem.chosen(runs[best])
    write_text(args.output, "".join(f"{line}\n" for line in chosen))
    if problem.references is not None:
        report = compare(problem, runs, best)
        if args.json is not None:
            write_json(args.json, report)
        print(summary(report["baseline"], report["reranked"], report["oracle"]))
        print(
            f"p = {report['p']:.4f} (two-sided, approximate randomization, the run that is best on "
            f"validation, BLEU {report['reranked'][best]:.2f})"
        )


def compare(problem: problems.RerankingProblem, runs: Sequence[np.ndarray], best: int) -> dict:
    """BLEU of the baseline, of each run and of the oracle, and the p-value of the best run."""
    lists = problem.lists
    choices = [lists.choose(weights) for weights in (problem.baseline, *runs)]
    return {
        "sentences": len(problem.texts),
        "baseline": lists.bleu_of(choices[0]),
        "reranked": [lists.bleu_of(choice) for choice in choices[1:]],
        "oracle": lists.bleu_of(oracle(lists, choices)),
        "p": bleu_randomization(
            problem.chosen(problem.baseline),
            problem.chosen(runs[best]),
            problem.references or [],
            tokenized_metric(),
        ),
    }


def read_weights(path: Path, files: int) -> dict:
    """The content of a file of weights for ``files`` files of scores. Raises UserError."""
    try:
        content = parse_json(read_bytes(path))
        widths = {len(run["weights"]) for run in content["runs"]}
        numbers = [w for run in content["runs"] for w in (run["bleu"], *run["weights"])]
        bad = not widths or not all(math.isfinite(number) for number in numbers)
        bad |= not {"join_subwords", "sums"} <= content.keys()
        bad |= {len(content["models"]) + 2} != widths
    except (ValueError, TypeError, KeyError, AttributeError):
        bad = True
    if bad:
        raise UserError(f"{path} is not a file of weights; give the output of casrnn rerank tune")
    if widths != {files + 2}:
        raise UserError(
            f"{path} has weights for {min(widths) - 2} files of scores, but --scores names "
            f"{files}; give the same models as for tuning, in the same order"
        )
    return content


def check_models(tuned: list[str], given: list[str], args: argparse.Namespace) -> None:
    """Raise UserError if a file has another model's scores than the one used for tuning."""
    for path, before, now in zip(args.scores, tuned, given, strict=True):
        if before and now and before != now:
            raise UserError(
                f"{path} has the scores of {now}, but {args.weights} was tuned with those of "
                f"{before} in its place; give the same models in the same order"
            )
