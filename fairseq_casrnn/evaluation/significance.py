"""Mean, deviation, significance over seeds: ``python -m fairseq_casrnn.evaluation.significance``.

The CAS-LSTM paper's Table 5 gives the mean and the deviation of BLEU over five runs of each model
and marks with p a one-tailed paired t-test against the plain LSTM. Runs are paired by their seed.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_casrnn.data.command import Parser, run_main
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError

#: Scores of a model by seed.
Scores = dict[int, float]


def mean_deviation(scores: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n − 1), the latter None for a single score."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    return statistics.fmean(scores), deviation


def paired_t_test(scores: Scores, baseline: Scores) -> tuple[float, int]:
    """One-tailed paired t-test of whether ``scores`` exceed ``baseline``.

    Returns:
        The p-value and the number of seeds that both have, which are the pairs.

    Raises:
        UserError: fewer than two seeds in common.
    """
    from scipy.stats import ttest_rel

    seeds = sorted(scores.keys() & baseline.keys())
    if len(seeds) < 2:
        raise UserError(
            f"a paired t-test needs two seeds that both models were trained with, not {len(seeds)}"
        )
    ours, theirs = [scores[s] for s in seeds], [baseline[s] for s in seeds]
    differences = {a - b for a, b in zip(ours, theirs, strict=True)}
    if len(differences) == 1:  # no spread: the statistic is 0/0 or infinite
        difference = differences.pop()
        return (0.5 if difference == 0 else float(difference < 0)), len(seeds)
    return float(ttest_rel(ours, theirs, alternative="greater").pvalue), len(seeds)


def read_results(
    paths: Iterable[Path], metric: str, subset: str = "test", **settings: object
) -> dict[str, Scores]:
    """Scores by architecture and seed from JSON lines; a repeated run's last line counts.

    Args:
        paths: files of ``evaluate.sh``.
        metric: the score's name: ``bleu``, ``sacrebleu``, ``accuracy`` or ``macro_f1``.
        subset: lines of another split are passed over.
        settings: lines with other values than these are passed over, e.g. ``checkpoint="best"``.

    Raises:
        UserError: a line is not JSON or lacks ``arch``, ``seed`` or the metric; no line is left.
    """
    wanted = {key: value for key, value in settings.items() if value is not None}
    results: dict[str, Scores] = {}
    for path in paths:
        for number, line in enumerate(read_lines(path), start=1):
            try:
                entry = json.loads(line)
                if entry.get("subset", "test") != subset:
                    continue
                if any(entry.get(key) != value for key, value in wanted.items()):
                    continue
                if "options" in entry:  # of fairseq-generate: an experiment, not the result
                    continue
                arch, seed, score = entry["arch"], int(entry["seed"]), float(entry[metric])
            except (ValueError, TypeError, AttributeError):
                raise UserError(f"{path}, line {number} is no result line (JSON)") from None
            except KeyError as key:
                raise UserError(f"{path}, line {number} has no {key}") from None
            results.setdefault(arch, {})[seed] = score
    if not results:
        chosen = "".join(f", {key} {value}" for key, value in wanted.items())
        raise UserError(f"{', '.join(map(str, paths))}: no result with subset {subset}{chosen}")
    return results


def table(results: dict[str, Scores], baseline: str | None = None) -> list[str]:
    """Lines of a table: model, mean ± deviation, runs, and p against the baseline.

    Raises:
        UserError: the baseline is not among the results.
    """
    if baseline is not None and baseline not in results:
        raise UserError(f"no result of {baseline}; there are {', '.join(sorted(results))}")
    width = max(len(arch) for arch in results)
    lines = []
    for arch in sorted(results, key=lambda arch: (arch != baseline, arch)):
        scores = results[arch]
        mean, deviation = mean_deviation(list(scores.values()))
        spread = "" if deviation is None else f" ± {deviation:.2f}"
        line = f"{arch:<{width}}  {mean:.2f}{spread}  ({len(scores)} runs)"
        if baseline is not None and arch != baseline:
            if len(scores.keys() & results[baseline].keys()) > 1:
                p, pairs = paired_t_test(scores, results[baseline])
                line += f"  p = {p:.2g} against {baseline} (one-tailed, {pairs} pairs)"
            else:
                line += f"  no test: under two seeds in common with {baseline}"
        lines.append(line.replace("(1 runs)", "(1 run)"))
    return lines


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.significance",
        description="Mean ± deviation over seeds and a one-tailed paired t-test.",
    )
    parser.add_argument("results", nargs="+", type=Path, help="results.jsonl of evaluate.sh")
    parser.add_argument("--baseline", help="architecture to test against")
    parser.add_argument(
        "--metric", default="bleu", help="bleu (default), sacrebleu, accuracy or macro_f1"
    )
    parser.add_argument("--subset", default="test", help="only results of this split (test)")
    parser.add_argument("--checkpoint", help="only results of this choice of checkpoint")
    parser.add_argument("--beam", type=int, help="only results of this beam size")
    args = parser.parse_args(argv)

    def show() -> None:
        results = read_results(
            args.results, args.metric, args.subset, checkpoint=args.checkpoint, beam=args.beam
        )
        print("\n".join(table(results, args.baseline)))

    return run_main(show)


if __name__ == "__main__":
    sys.exit(main())
