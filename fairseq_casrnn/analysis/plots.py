"""Plots of training runs and of a translation's attention, as PNG.

    python -m fairseq_casrnn.analysis.plots learning-curve train.log curve.png
    python -m fairseq_casrnn.analysis.plots metric-curves wcpa curves.png */seed*/train.log
    python -m fairseq_casrnn.analysis.plots attention checkpoint_best.pt data-bin \\
        --bpe-codes codes --sentence "um halb vier" attention.png

Needs matplotlib (``pip install 'fairseq-casrnn[plots]'``).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.console.program import Parser, captured_log, run_main
from fairseq_casrnn.data.subwords import load_bpe_codes
from fairseq_casrnn.data.symbols import escape_line
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.files import check_writable
from fairseq_casrnn.plotting import INK, MUTED, new_figure, save_png
from fairseq_casrnn.runs.training_log import read_log, read_metric

_TRAIN, _VALID = "#9ab6d6", "#c8442c"


def learning_curve(log: str | os.PathLike, png: str | os.PathLike) -> None:
    """Plot training and validation loss by update, from fairseq's ``log``.

    If the log has perplexities, the loss is in bits per token.

    Raises:
        UserError: as :func:`.read_log`; matplotlib is missing; ``png`` cannot be written.
    """
    curves, per_token = read_log(log)
    train = curves["train_inner"] if len(curves["train_inner"]) > 1 else curves["train"]
    figure, axes = new_figure(6.4, 4.0)
    lines = [(train, _TRAIN, "training"), (curves["valid"], _VALID, "validation")]
    for curve, color, label in lines:
        if curve:
            updates, losses = zip(*curve, strict=True)
            axes.plot(updates, losses, color=color, label=label, lw=2, marker="o", ms=4)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("updates", color=MUTED)
    axes.set_ylabel("loss, bits per token" if per_token else "loss", color=MUTED)
    axes.grid(axis="y", which="major", color="#e4e4e4", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    if curves["valid"]:
        last, loss = curves["valid"][-1]
        result = f"perplexity {2**loss:.3g}" if per_token else f"loss {loss:.3g}"
        text = f"Validation {result} after {last:,} updates"
        axes.set_title(text, loc="left", color=INK, fontsize=11)
    save_png(figure, png)


def metric_curves(logs: Sequence[str | os.PathLike], metric: str, png: str | os.PathLike) -> None:
    """Plot a validation metric by epoch, with one line per log ``NAME/seedN/train.log``.

    Runs of the same NAME have the same colour. The axis goes from 0 to 1 if the values look like
    shares.

    Raises:
        UserError: as :func:`read_metric`; matplotlib is missing; ``png`` cannot be written.
    """
    curves: dict[str, list] = {}  # by NAME, a curve for each run
    for log in logs:
        curves.setdefault(Path(log).parent.parent.name, []).append(read_metric(log, metric))
    figure, axes = new_figure(6.4, 4.0)
    for number, (name, runs) in enumerate(curves.items()):
        for run, curve in enumerate(runs):
            label = None if run else name  # one legend entry per NAME
            axes.plot(*zip(*curve, strict=True), color=f"C{number}", label=label, lw=1.5)
    axes.set_xlabel("epoch", color=MUTED)
    axes.set_ylabel(metric, color=MUTED)
    axes.xaxis.get_major_locator().set_params(integer=True)
    values = [value for runs in curves.values() for curve in runs for _, value in curve]
    if min(values) >= 0 and 0.5 < max(values) <= 1:
        axes.set_ylim(-0.02, 1.02)
    axes.grid(axis="y", color="#e4e4e4", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    save_png(figure, png)


def attention_map(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    png: str | os.PathLike,
) -> None:
    """Plot which source tokens each target token attends to.

    Args:
        source: S tokens, subwords marked with ``@@``.
        target: T tokens, marked in the same way.
        weights: (T, S), each row summing to 1.
        png: file to write. Grid lines separate words, not the subwords of a word.

    Raises:
        UserError: matplotlib is missing; ``png`` cannot be written.
    """
    rows, columns = len(target), len(source)
    figure, axes = new_figure(1.6 + 0.42 * columns, 1.5 + 0.32 * rows)
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(columns), [token.removesuffix("@@") for token in source])
    axes.tick_params(axis="x", labelrotation=55)
    for label in axes.get_xticklabels():
        label.set(ha="left", rotation_mode="anchor")
    axes.set_yticks(range(rows), [token.removesuffix("@@") for token in target])
    axes.tick_params(length=0, labelsize=10, labelcolor=INK, top=False, bottom=False)
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", length=0)
    for tokens, line in ((source, axes.axvline), (target, axes.axhline)):
        for i, token in enumerate(tokens[:-1]):
            if not token.endswith("@@"):
                line(i + 0.5, color="#d0d0d0", lw=0.8)
    axes.spines[:].set(color="#d0d0d0", visible=True)
    save_png(figure, png)


def translation_attention(
    checkpoint: str | os.PathLike, data: str | os.PathLike, sentence: str, beam: int = 10
) -> tuple[list[str], list[str], list[list[float]]]:
    """Translate one sentence and return the attention weights.

    Args:
        checkpoint: checkpoint of a translation model, or its folder.
        data: its folder of binarised data, which has the dictionaries.
        sentence: tokens separated by spaces, segmented as the training data was.
        beam: beam size.

    Returns:
        Source tokens (S), target tokens (T), both with ``</s>``; weights (T, S).

    Raises:
        UserError: not a checkpoint of a translation model, data of another model, a beam below 1,
            or a model without attention.
    """
    from fairseq.dataclass.configs import GenerationConfig

    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.inference import loading
    from fairseq_casrnn.kinds import TRANSLATION

    check_at_least(1, beam=beam)
    model, task = loading.load_model(checkpoint, data, kind=TRANSLATION)
    ids = task.source_dictionary.encode_line(escape_line(sentence), add_if_not_exist=False).long()
    batch = task.build_dataset_for_inference([ids], [len(ids)]).collater(
        [{"id": 0, "source": ids, "target": None}]
    )
    with explained():
        generator = task.build_generator([model], GenerationConfig(beam=beam))
        best = task.inference_step(generator, [model], batch)[0][0]
    if best["attention"] is None or best["attention"].numel() == 0:
        raise UserError(f"the model of {checkpoint} has no attention to draw; give another")
    source = [task.source_dictionary[i] for i in ids.tolist()]
    target = [task.target_dictionary[i] for i in best["tokens"].tolist()]
    return source, target, best["attention"].t().tolist()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = Parser(prog="python -m fairseq_casrnn.analysis.plots")
    commands = parser.add_subparsers(dest="command", required=True)
    curve = commands.add_parser(
        "learning-curve", help="plot training and validation loss by update"
    )
    curve.add_argument("log", help="log of fairseq-train (its output, or --log-file) or of hydra")
    metric = commands.add_parser(
        "metric-curves", help="plot a validation metric of several runs by epoch"
    )
    metric.add_argument("metric", help="name of the metric in the log, such as wcpa")
    metric.add_argument("png", help="output file")
    metric.add_argument("logs", nargs="+", help="train.log of each run, NAME/seedN/train.log")
    attention = commands.add_parser(
        "attention", help="plot the attention of one translated sentence"
    )
    attention.add_argument("checkpoint", help="checkpoint of a translation model, or its folder")
    attention.add_argument("data", help="folder of binarised data")
    attention.add_argument("--sentence", required=True, help="source sentence, tokenised")
    attention.add_argument("--bpe-codes", help="BPE merges of subword-nmt to apply to it")
    attention.add_argument("--beam", type=int, default=10, help="beam size (default: 10)")
    for command in (curve, attention):
        command.add_argument("png", help="output file")
    args = parser.parse_args(argv)

    def run() -> None:
        with captured_log():  # importing fairseq enables DEBUG, and matplotlib logs a lot
            draw(args)

    return run_main(run)


def draw(args: argparse.Namespace) -> None:
    """Run a command. Raises UserError."""
    if not str(args.png).endswith(".png"):  # probably a log; do not overwrite it
        raise UserError(f"{args.png} does not end in .png; give the file for the plot")
    check_writable(args.png)
    if args.command == "learning-curve":
        learning_curve(args.log, args.png)
    elif args.command == "metric-curves":
        metric_curves(args.logs, args.metric, args.png)
    else:
        sentence = args.sentence
        if args.bpe_codes is not None:
            sentence = load_bpe_codes(args.bpe_codes).process_line(sentence)
        attention_map(
            *translation_attention(args.checkpoint, args.data, sentence, args.beam), args.png
        )


if __name__ == "__main__":
    sys.exit(main())
