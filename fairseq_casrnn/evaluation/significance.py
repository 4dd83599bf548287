"""Mean, deviation, significance over seeds: ``python -m fairseq_casrnn.evaluation.significance``.

The CAS-LSTM paper's Table 5 gives the mean and the deviation of BLEU over five runs of each model
and marks with p a one-tailed paired t-test against the plain LSTM. Runs are paired by their seed.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_casrnn.data.command import Parser, run_main, show
from fairseq_casrnn.data.text import decode_lines, read_bytes
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError, printable

#: Scores of a model by seed.
Scores = dict[int, float]
#: Result lines by architecture and seed.
Runs = dict[str, dict[int, dict]]

#: Perplexities, as ``evaluate_lm`` records them.
LOWER_IS_BETTER = ("valid", "test")
#: What results of one table should agree in; options of the command line.
SETTINGS = ("checkpoint", "beam", "mode")


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


def mcnemar(ours: Sequence[bool], theirs: Sequence[bool]) -> tuple[int, int, float]:
    """McNemar's exact test (1947) of two classifiers on the same sentences, two-sided.

    Args:
        ours, theirs: whether each sentence is classified rightly.

    Returns:
        How many sentences only ours has right, how many only theirs, and the p-value: that of as
        uneven a division of these, each being as likely to fall to either.

    Raises:
        UserError: they are not of equally many sentences.
    """
    from scipy.stats import binomtest

    if len(ours) != len(theirs):
        raise UserError(f"{len(ours)} sentences cannot be compared with {len(theirs)}")
    only_ours = sum(a and not b for a, b in zip(ours, theirs, strict=True))
    only_theirs = sum(b and not a for a, b in zip(ours, theirs, strict=True))
    differ = only_ours + only_theirs
    return only_ours, only_theirs, binomtest(only_ours, differ).pvalue if differ else 1.0


def read_results(
    paths: Iterable[Path], metric: str, subset: str = "test", arch: str = ".*", **settings: object
) -> dict[str, Scores]:
    """Scores by architecture and seed from JSON lines; a repeated run's last line counts.

    Warns of results that were measured with different settings.

    Args:
        paths: files of ``evaluate.sh``.
        metric: the score's name: ``bleu``, ``accuracy``, ``test``, …
        subset: lines of another split are passed over.
        arch: pattern; lines of architectures with other names are passed over.
        settings: lines with other values than these are passed over, e.g. ``checkpoint="best"``.

    Raises:
        UserError: a line is no result with the metric; no line is left.
    """
    runs: Runs = {}
    for path in paths:
        for name, found in read_runs(path, [metric], subset, **settings).items():
            if re.fullmatch(arch, name):
                runs.setdefault(name, {}).update(found)
    if not runs:
        wanted = {"arch": None if arch == ".*" else arch, **settings}
        chosen = "".join(f", {key} {value}" for key, value in wanted.items() if value is not None)
        raise UserError(
            f"{', '.join(map(str, paths))}: no result with subset {subset}{chosen}; run "
            "evaluate.sh for it first"
        )
    warn_of_mixture([entry for found in runs.values() for entry in found.values()])
    return {
        name: {seed: float(entry[metric]) for seed, entry in found.items()}
        for name, found in runs.items()
    }


def read_runs(path: Path, numbers: Sequence[str], subset: str = "test", **settings: object) -> Runs:
    """Result lines of a file; a repeated run's last line counts.

    What was measured before a training had ended is passed over, with a warning where nothing else
    is known of that run.

    Args:
        path: file of ``evaluate.sh``.
        numbers: what must be finite numbers: the first in every line, the others where they are.
        subset: lines of another split are passed over.
        settings: lines with other values than these are passed over.

    Raises:
        UserError: the file has no line, or one of them is no result.
    """
    wanted = {"subset": subset, **{k: v for k, v in settings.items() if v is not None}}
    runs: Runs = {}
    unfinished = set()
    lines = decode_lines(read_bytes(path), path)
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} has no results; run evaluate.sh first")
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            entry = {"subset": "test", **parse_json(line)}
        except (ValueError, TypeError):
            raise UserError(f"{where} is no result line (JSON); remove it") from None
        if any(entry.get(key) != value for key, value in wanted.items()):
            continue
        if "options" in entry:  # of fairseq-generate: an experiment, not the result
            continue
        _check(entry, numbers, where)
        if entry.get("finished") is False:
            unfinished.add((entry["arch"], entry["seed"]))
        else:
            runs.setdefault(entry["arch"], {})[entry["seed"]] = entry
    for arch, seed in sorted(unfinished):
        if seed not in runs.get(arch, {}):
            print(
                f"warning: {path}: {printable(arch)} with seed {seed} is left out, as its training "
                "was interrupted; call train.sh again to go on, then evaluate.sh",
                file=sys.stderr,
            )
    return runs


def _check(entry: dict, numbers: Sequence[str], where: str) -> None:
    """Raise UserError unless the result line at ``where`` has what :func:`read_runs` reads."""
    for key in ("arch", "seed", numbers[0]):
        if key not in entry:
            raise UserError(f"{where} has no '{key}'; it has {', '.join(entry)}")
    if not isinstance(entry["arch"], str) or not isinstance(entry["seed"], int):
        raise UserError(f"{where} needs a name as 'arch' and an integer as 'seed'; correct it")
    for key in numbers:
        value = entry.get(key)
        if value is None and key != numbers[0]:
            continue
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UserError(f"{where} has no finite number as '{key}'; evaluate the run again")


def warn_of_mixture(entries: Sequence[dict]) -> None:
    """Say on stderr in which of ``SETTINGS`` the result lines of a table differ."""
    for name in SETTINGS:
        values = sorted({printable(str(entry[name])) for entry in entries if name in entry})
        if len(values) > 1:
            print(
                f"warning: these results differ in {name} ({', '.join(values)}); choose one with "
                f"--{name}, or evaluate all runs alike",
                file=sys.stderr,
            )


def table(
    results: dict[str, Scores], baseline: str | None = None, lower: bool = False
) -> list[str]:
    """Lines of a table: model, mean ± deviation, runs, and p against the baseline.

    Args:
        results: the scores.
        baseline: architecture to test against.
        lower: test whether the scores are below the baseline's: of perplexities.

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
                greater, less = scores, results[baseline]
                if lower:
                    greater, less = less, greater
                p, pairs = paired_t_test(greater, less)
                line += f"  p = {p:.2g} against {baseline} (one-tailed, {pairs} pairs)"
            else:
                line += f"  no test: under two seeds in common with {baseline}"
        lines.append(line.replace("(1 runs)", "(1 run)"))
    return lines


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.significance",
        description="Print mean ± deviation over seeds, and a one-tailed paired t-test.",
    )
    parser.add_argument("results", nargs="+", type=Path, help="results.jsonl from evaluate.sh")
    parser.add_argument("--baseline", help="architecture to compare with")
    parser.add_argument(
        "--metric",
        default="bleu",
        help="bleu (default), sacrebleu, accuracy, macro_f1, a tagger's f1, or a language model's "
        "perplexity, of which the lower one is the better: valid or test",
    )
    parser.add_argument(
        "--subset", default="test", help="only results on this split (default: test)"
    )
    parser.add_argument("--checkpoint", help="only results with this --checkpoint")
    parser.add_argument("--beam", type=int, help="only results with this beam size")
    parser.add_argument("--mode", help="only perplexities of sentences or continuous text")
    args = parser.parse_args(argv)

    def compare() -> None:
        settings = {name: getattr(args, name) for name in SETTINGS}
        results = read_results(args.results, args.metric, args.subset, **settings)
        show(table(results, args.baseline, args.metric in LOWER_IS_BETTER))

    return run_main(compare)


if __name__ == "__main__":
    sys.exit(main())
