"""``casrnn rerank tune``: tunes the weights of the features for BLEU on a validation set."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_casrnn.errors import check_at_least, counted
from fairseq_casrnn.evaluation.significance import mean_text
from fairseq_casrnn.files import check_writable, write_json
from fairseq_casrnn.reranking import problem as problems
from fairseq_casrnn.reranking.mert import oracle, tune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn rerank tune``."""
    problems.add_arguments(parser)
    parser.add_argument(
        "--output", required=True, type=Path, help="output file for the weights (JSON)"
    )
    parser.add_argument(
        "--join-subwords", action="store_true", help="join the list's BPE units into words for BLEU"
    )
    parser.add_argument(
        "--sums",
        action="store_true",
        help="use log-probabilities of sentences as features (default: means over their tokens)",
    )
    parser.add_argument("--runs", type=int, default=1, help="number of tuning runs (default: 1)")
    parser.add_argument(
        "--restarts", type=int, default=10, help="random starting points of each run (default: 10)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Tune, write the weights and print BLEU before and after. Raises UserError."""
    check_at_least(1, runs=args.runs)
    check_at_least(0, restarts=args.restarts, seed=args.seed)
    check_writable(args.output)
    problem = problems.load(args, args.join_subwords, args.sums, needs_references=True)
    lists, found = problem.lists, []
    for seed in range(args.seed, args.seed + args.runs):
        weights, bleu = tune(lists, problem.baseline, args.restarts, seed)
        found.append({"seed": seed, "bleu": round(bleu, 4), "weights": weights.tolist()})
    best = max(found, key=lambda run: run["bleu"])
    choices = [lists.choose(weights) for weights in (problem.baseline, best["weights"])]
    before, oracle_bleu = lists.bleu(problem.baseline), lists.bleu_of(oracle(lists, choices))
    names = ["score of the list", *map(str, args.scores), "length"]
    tuned = {
        "features": names,
        "models": problem.models,
        "join_subwords": args.join_subwords,
        "sums": args.sums,
        "baseline": round(before, 4),
        "oracle": round(oracle_bleu, 4),
        "runs": found,
    }
    write_json(args.output, tuned)
    print(summary(before, [run["bleu"] for run in found], oracle_bleu))
    for name, weight in zip(names, best["weights"], strict=True):
        print(f"{weight:8.4f}  {name}")


def summary(before: float, after: list[float], oracle_bleu: float) -> str:
    """BLEU before and after reranking and of the oracle; mean and deviation of several runs."""
    text = mean_text(after)
    if len(after) > 1:
        text += f" ({counted(len(after), 'run')})"
    return f"BLEU {before:.2f}, reranked {text}, oracle {oracle_bleu:.2f}"
