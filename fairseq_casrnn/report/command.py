"""``casrnn report``: curves, errors, settings and environment of runs in one HTML page."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn import __version__
from fairseq_casrnn.console.program import show
from fairseq_casrnn.evaluation.prediction_files import CLASSES, TRANSLATIONS
from fairseq_casrnn.evaluation.significance import METRICS
from fairseq_casrnn.files import check_writable, write_text
from fairseq_casrnn.report import svg
from fairseq_casrnn.report.run_files import RunFiles, read_run
from fairseq_casrnn.runs.layout import PREDICTIONS

MOST_ERRORS, MOST_SAMPLES = 20, 10
# Title, name in the log, whether to draw the training curve in addition to the validation curve.
CHARTS = (
    ("Loss", "loss", True),
    ("Loss without label smoothing", "nll_loss", True),
    ("Perplexity", "ppl", True),
    ("Accuracy", "accuracy", True),
    ("Macro-F1", "macro_f1", False),
    ("F1", "f1", False),
    ("BLEU", "bleu", False),
    ("WCPA", "wcpa", False),
    ("Learning rate", "lr", True),
    ("Gradient norm", "gnorm", True),
    ("Words per second", "wps", True),
)
ONLY_TRAINING = ("lr", "gnorm", "wps")
MAY_BE_LOGARITHMIC = ("loss", "nll_loss", "ppl", "gnorm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Write a self-contained HTML page about one run, or comparing several: curves, "
        "scores, confusion matrix, calibration, errors, samples, settings, environment, "
        "and the command to train again. The report shows only what the runs' folders "
        "contain, so evaluate them first."
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run folder, OUT/NAME/seedN"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("report.html"),
        help="output file (default: report.html)",
    )
    parser.add_argument("--subset", default="test", help="evaluated split (default: test)")
    parser.add_argument("--title", help="title of the page (default: the names of the runs)")


def run(args: argparse.Namespace) -> None:
    """Write the page. Raises UserError if a folder is not a run's, or a file is damaged."""
    check_writable(args.output)
    folders = list(dict.fromkeys(folder.resolve() for folder in args.runs))
    found = [read_run(folder, args.subset) for folder in folders]
    runs = dict(zip(short_names(folders), found, strict=True))
    text = render(runs, args.subset, args.title or ", ".join(runs))
    write_text(args.output, text)
    for files in found:
        if not files.scores and files.predictions is None:
            option = "" if args.subset == "test" else f" with --subset {args.subset}"
            show([f"{files.folder} has no scores on {args.subset}; evaluate it{option} first"])
        elif files.predictions is None and "test" not in files.scores:  # language models have none
            show([f"{files.folder} has no {args.subset}.{PREDICTIONS}: no errors or samples of it"])
    show([f"report: {args.output}"])


def short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest unique ends of the paths, at least "NAME/seedN"."""
    for length in range(2, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-length:]) for folder in folders]
        if len(set(names)) == len(names):
            break
    return names


def render(runs: dict[str, RunFiles], subset: str, title: str) -> str:
    """The HTML page; ``runs`` are keyed by their names."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fairseq_casrnn.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        title=title,
        subset=subset,
        version=__version__,
        runs=runs,
        score_names={
            name: ", ".join(filter(None, metric))
            for name, metric in METRICS.items()
            if any(name in run.scores for run in runs.values())
        },
        charts=charts(runs),
        settings=comparison({name: run.options for name, run in runs.items()}),
        environment=comparison({name: run.environment for name, run in runs.items()}),
        pictures={name: pictures(name, run) for name, run in runs.items()},
        errors={name: errors(run) for name, run in runs.items()},
        samples={name: samples(run) for name, run in runs.items()},
        join=shlex.join,
    )


def charts(runs: dict[str, RunFiles]) -> Sequence[tuple[str, object]]:
    """(title, chart) of each quantity in the logs; all curves of a run have the same colour."""
    found = []
    for title, name, of_training in CHARTS:
        lines = []
        for number, (label, run) in enumerate(runs.items()):
            for part in ("valid", "train"):
                points = run.curves.get((part, name))
                if not points or (part == "train") > of_training:
                    continue
                if part == "valid" and name in ONLY_TRAINING:
                    continue
                thin = part == "train" and name not in ONLY_TRAINING
                what = f"{label}, training" if part == "train" else f"{label}, validation"
                lines.append(svg.Line(what, points, number, thin))
        if any(len(line.points) > 1 for line in lines):
            log = name in MAY_BE_LOGARITHMIC and svg.spans_magnitudes(lines)
            title += ", logarithmic" if log else ""
            found.append((title, svg.line_chart(title, lines, "updates", log)))
    return found


def comparison(values: dict[str, dict[str, str]]) -> list[tuple[str, list[str], bool]]:
    """(name, values by run, whether they differ); names whose values differ come first."""
    names = dict.fromkeys(name for settings in values.values() for name in settings)
    rows = [(name, [settings.get(name, "") for settings in values.values()]) for name in names]
    marked = [(name, row, len(set(row)) > 1) for name, row in rows]
    return sorted(marked, key=lambda row: not row[2])


def pictures(name: str, run: RunFiles) -> list[tuple[str, object]]:
    """(title, chart) of a run's confusion matrix and calibration."""
    if run.predictions is None or not run.predictions.examples:
        return []
    classes, counts = run.predictions.confusion()
    bins, error = run.predictions.calibration(), run.predictions.calibration_error()
    return [
        ("Confusion matrix", svg.heat_map(f"Confusion matrix of {name}", classes, counts)),
        (
            f"Calibration, expected error {error:.3f}",
            svg.calibration_chart(f"Calibration of {name}", bins, error),
        ),
    ]


def errors(run: RunFiles) -> tuple[list[str], Sequence[Sequence]]:
    """Header and rows of the most confident errors."""
    if run.predictions is None:
        return [], []
    return [*CLASSES, *run.predictions.columns], run.predictions.errors(MOST_ERRORS)


def samples(run: RunFiles) -> tuple[list[str], Sequence[Sequence]]:
    """Header and rows of sample outputs."""
    if run.predictions is None:
        return [], []
    header = TRANSLATIONS if run.predictions.translations else CLASSES
    return [*header, *run.predictions.columns], run.predictions.samples(MOST_SAMPLES)
