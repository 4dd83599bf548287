"""Mean, deviation, significance over seeds: ``python -m fairseq_casrnn.evaluation.significance``.

As in Table 5 of the CAS-LSTM paper: mean and deviation of BLEU over several runs of each model, and
a one-tailed paired t-test against the plain LSTM. Runs are paired by their seed.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_casrnn.console.program import Parser, run_main, show
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError, counted, printable

#: Scores of a model by seed.
Scores = dict[int, float]
#: Result lines by architecture and seed.
Runs = dict[str, dict[int, dict]]


class Metric(NamedTuple):
    """A score in the result of an evaluation.

    Args:
        title: its name in an output.
        split: of a perplexity, since a result has those of both splits.
    """

    title: str
    split: str = ""


METRICS = {
    "accuracy": Metric("accuracy"),
    "macro_f1": Metric("macro-F1"),
    "f1": Metric("F1"),
    "precision": Metric("precision"),
    "recall": Metric("recall"),
    "bleu": Metric("BLEU (tokenised)"),
    "sacrebleu": Metric("sacreBLEU"),
    "valid": Metric("perplexity", "validation"),
    "test": Metric("perplexity", "test"),
    "valid_with_cache": Metric("perplexity with a cache", "validation"),
    "test_with_cache": Metric("perplexity with a cache", "test"),
}
"""The scores by their keys."""
COMPARED = ("f1", "accuracy", "bleu", "test")
"""What systems are compared by: the first one that a result has."""
LOWER_IS_BETTER = {name for name, metric in METRICS.items() if metric.split}
BASELINE = (
    "compare the others with: a paired t-test over seeds and, for each seed, McNemar's test of "
    "classifiers or approximate randomization of taggers and translations"
)
"""Help of ``--baseline``, after "system to"."""
#: Settings, also options of the command line, that should be equal for all results of a table.
SETTINGS = ("checkpoint", "beam", "mode")


def mean_deviation(scores: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n − 1), the latter None for a single score."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    return statistics.fmean(scores), deviation


def mean_text(scores: Iterable[float]) -> str:
    """Mean ± deviation with two digits after the point; the mean alone for a single score."""
    mean, deviation = mean_deviation(list(scores))
    return f"{mean:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def paired_t_test(scores: Scores, baseline: Scores) -> tuple[float, int]:
    """One-tailed paired t-test of whether ``scores`` exceed ``baseline``.

    Returns:
        The p-value and the number of pairs, the seeds that both have.

    Raises:
        UserError: fewer than two seeds are in common.
    """
    from scipy.stats import ttest_rel

    seeds = sorted(scores.keys() & baseline.keys())
    if len(seeds) < 2:
        raise UserError(
            f"a paired t-test needs at least two seeds that both models have, not {len(seeds)}; "
            "train with more seeds"
        )
    ours, theirs = [scores[s] for s in seeds], [baseline[s] for s in seeds]
    # Rounded: 0.3 - 0.2 and 0.4 - 0.3 are equal.
    differences = {round(a - b, 9) for a, b in zip(ours, theirs, strict=True)}
    if len(differences) == 1:  # zero variance: the statistic is 0/0 or infinite
        difference = differences.pop()
        return (0.5 if difference == 0 else float(difference < 0)), len(seeds)
    return float(ttest_rel(ours, theirs, alternative="greater").pvalue), len(seeds)


def mcnemar(ours: Sequence[bool], theirs: Sequence[bool]) -> tuple[int, int, float]:
    """McNemar's exact two-sided test (1947) of two classifiers on the same sentences.

    Args:
        ours, theirs: whether each sentence is classified correctly.

    Returns:
        The number of sentences that only ours, and that only theirs classifies correctly, and the
        p-value of a binomial test that both are equally likely.

    Raises:
        UserError: the numbers of sentences differ.
    """
    from scipy.stats import binomtest

    if len(ours) != len(theirs):
        raise UserError(
            f"{len(ours)} sentences cannot be compared with {len(theirs)}; evaluate both again on "
            "the same data"
        )
    only_ours = sum(a and not b for a, b in zip(ours, theirs, strict=True))
    only_theirs = sum(b and not a for a, b in zip(ours, theirs, strict=True))
    differ = only_ours + only_theirs
    return only_ours, only_theirs, binomtest(only_ours, differ).pvalue if differ else 1.0


def read_results(
    paths: Iterable[Path], metric: str, subset: str = "test", **settings: object
) -> dict[str, Scores]:
    """Read scores by architecture and seed from JSON lines; the last line of a run counts.

    Warns if results were measured with different settings.

    Args:
        paths: ``results.jsonl`` of evaluations.
        metric: name of the score: ``bleu``, ``accuracy``, ``test``, …
        subset: only read lines of this split.
        settings: only read lines with these values, such as ``checkpoint="best"``.

    Raises:
        UserError: a line is not a result with the metric, or no line is left.
    """
    runs: Runs = {}
    for path in paths:
        for name, found in read_runs(path, [metric], subset, **settings).items():
            runs.setdefault(name, {}).update(found)
    if not runs:
        chosen = "".join(f", {key} {value}" for key, value in settings.items() if value is not None)
        raise UserError(
            f"{', '.join(map(str, paths))}: no result with subset {subset}{chosen}; "
            "evaluate the runs so first"
        )
    warn_of_mixed_settings([entry for found in runs.values() for entry in found.values()])
    return {
        name: {seed: float(entry[metric]) for seed, entry in found.items()}
        for name, found in runs.items()
    }


def read_runs(path: Path, numbers: Sequence[str], subset: str = "test", **settings: object) -> Runs:
    """Read the result lines of a file; the last line of a run counts.

    Results of unfinished trainings are skipped, with a warning if a run has no other result.

    Args:
        path: ``results.jsonl`` of evaluations.
        numbers: keys of finite numbers; every line needs the first, the others are optional.
        subset: only read lines of this split.
        settings: only read lines with these values.

    Raises:
        UserError: the file has no line, or a line is not a result.
    """
    wanted = {name: value for name, value in settings.items() if value is not None}
    runs: Runs = {}
    unfinished = set()
    lines = read_lines(path, may_be_blank=True)
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} has no results; evaluate the runs first")
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            entry = dict(**parse_json(line))
        except (ValueError, TypeError):
            raise UserError(f"{where} is not a result in JSON; remove it") from None
        if not is_of_split(entry, subset):
            continue
        if any(entry.get(key) != value for key, value in wanted.items()):
            continue
        _check(entry, numbers, where)
        if entry.get("finished") is False:
            unfinished.add((entry["arch"], entry["seed"]))
        else:
            runs.setdefault(entry["arch"], {})[entry["seed"]] = entry
    for arch, seed in sorted(unfinished):
        if seed not in runs.get(arch, {}):
            print(
                f"warning: {path}: {printable(arch)} with seed {seed} is left out because its "
                "training was interrupted; run the same training again to resume it, then evaluate",
                file=sys.stderr,
            )
    return runs


def _check(entry: dict, numbers: Sequence[str], where: str) -> None:
    """Raise UserError unless the result line at ``where`` has the keys that are needed."""
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


def is_of_split(result: Mapping[str, object], subset: str) -> bool:
    """Whether a result is one of a split: of the test set if it names none.

    Experiments with options of fairseq-generate do not count.
    """
    return result.get("subset", "test") == subset and "options" not in result


def warn_of_mixed_settings(entries: Sequence[dict]) -> None:
    """Warn on stderr if the results of a table differ in one of ``SETTINGS``."""
    for name in SETTINGS:
        values = sorted({printable(str(entry[name])) for entry in entries if name in entry})
        if len(values) > 1:
            print(
                f"warning: these results differ in {name} ({', '.join(values)}); choose one with "
                f"--{name}, or evaluate all runs with the same one",
                file=sys.stderr,
            )


def table(
    results: dict[str, Scores], baseline: str | None = None, lower: bool = False
) -> list[str]:
    """Lines of a table: model, mean ± deviation, number of runs, and p against the baseline.

    Args:
        results: the scores.
        baseline: architecture to test against.
        lower: whether lower scores are better, as for perplexities.

    Raises:
        UserError: the baseline is not among the results.
    """
    if baseline is not None and baseline not in results:
        raise UserError(f"no result of {baseline}; there are {', '.join(sorted(results))}")
    width = max(len(arch) for arch in results)
    lines = []
    for arch in sorted(results, key=lambda arch: (arch != baseline, arch)):
        scores = results[arch]
        line = f"{arch:<{width}}  {mean_text(scores.values())}  ({counted(len(scores), 'run')})"
        if baseline is not None and arch != baseline:
            if len(scores.keys() & results[baseline].keys()) > 1:
                greater, less = scores, results[baseline]
                if lower:
                    greater, less = less, greater
                p, pairs = paired_t_test(greater, less)
                test = f"one-tailed paired t-test, {pairs} pairs"
                line += f"  p = {p:.2g} against {baseline} ({test})"
            else:
                line += f"  no test: fewer than two seeds in common with {baseline}"
        lines.append(line)
    return lines


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.significance",
        description="Print mean ± deviation over seeds, and a one-tailed paired t-test.",
    )
    parser.add_argument("results", nargs="+", type=Path, help="results.jsonl of evaluations")
    parser.add_argument("--baseline", help="architecture to compare with")
    parser.add_argument(
        "--metric",
        default="bleu",
        help="bleu (default), sacrebleu, accuracy, macro_f1, a tagger's f1, or a language model's "
        "perplexity, for which lower is better: valid, test, or with a cache valid_with_cache, "
        "test_with_cache",
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
