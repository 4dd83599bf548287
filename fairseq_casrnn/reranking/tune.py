"""``casrnn rerank tune``: weights of the features for BLEU on a validation set."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable, whole_file
from fairseq_casrnn.reranking import problem as problems
from fairseq_casrnn.reranking.mert import oracle, tune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn rerank tune``."""
    problems.add_arguments(parser)
    parser.add_argument("--output", required=True, type=Path, help="file for the weights (JSON)")
    parser.add_argument(
        "--join-subwords", action="store_true", help="BLEU of words; the list has BPE units"
    )
    parser.add_argument(
        "--sums",
        action="store_true",
        help="log-probabilities of sentences as features (default: the mean of their tokens)",
    )
    parser.add_argument("--runs", type=int, default=1, help="tune so often (default: 1)")
    parser.add_argument(
        "--restarts", type=int, default=10, help="random starts of each run (default: 10)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first run (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Tune, write the weights and print BLEU before and after. Raises UserError."""
    if args.runs < 1 or args.restarts < 0 or args.seed < 0:
        raise UserError("--runs must be at least 1, --restarts and --seed at least 0")
    check_writable(args.output)
    problem = problems.load(args, args.join_subwords, args.sums, needs_references=True)
    lists, found = problem.lists, []
    for seed in range(args.seed, args.seed + args.runs):
        weights, bleu = tune(lists, problem.baseline, args.restarts, seed)
        found.append({"seed": seed, "bleu": round(bleu, 4), "weights": weights.tolist()})
    best = max(found, key=lambda run: run["bleu"])
    choices = [lists.choose(weights) for weights in (problem.baseline, best["weights"])]
    before, highest = lists.bleu(problem.baseline), lists.bleu_of(oracle(lists, choices))
    names = feature_names(args.scores)
    save(
        args.output,
        {
            "features": names,
            "models": problem.models,
            "join_subwords": args.join_subwords,
            "sums": args.sums,
            "baseline": round(before, 4),
            "oracle": round(highest, 4),
            "runs": found,
        },
    )
    print(summary(before, [run["bleu"] for run in found], highest))
    for name, weight in zip(names, best["weights"], strict=True):
        print(f"{weight:8.4f}  {name}")


def feature_names(scores: list[Path]) -> list[str]:
    """Names of the weights."""
    return ["score of the list", *map(str, scores), "length"]


def summary(before: float, after: list[float], best: float) -> str:
    """BLEU before, after and at best; of several runs mean and deviation."""
    text = f"{statistics.fmean(after):.2f}"
    if len(after) > 1:
        text += f" ± {statistics.stdev(after):.2f} ({len(after)} runs)"
    return f"BLEU {before:.2f}, reranked {text}, oracle {best:.2f}"


def save(path: Path, content: dict[str, object]) -> None:
    """Write JSON whole or not at all. Raises UserError."""
    write(path, json.dumps(content, indent=1) + "\n")


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises UserError."""
    with whole_file(path) as file:
        file.write(text)
