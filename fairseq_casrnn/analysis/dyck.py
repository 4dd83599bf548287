"""How well a language model closes brackets: ``casrnn analyze dyck``.

A prediction of a closing bracket is correct if the correct bracket has at least 0.8 of the
probability of all closing brackets (Hewitt et al. 2020). Only positions whose next token is a
closing bracket are scored. Long-distance prediction accuracy (LDPA) is the accuracy by the distance
between the brackets of a pair; worst-case prediction accuracy (WCPA) is its minimum.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fairseq_casrnn.data.batches import split_batches
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.brackets import (
    MIN_SHARE,
    add_counts,
    closing_tokens,
    count_right,
    worst,
)
from fairseq_casrnn.files import append_json, check_writable, whole_file
from fairseq_casrnn.runs.record import add_evaluation

BATCH_TOKENS = 20000


def measure(model, dictionary, sentences) -> tuple[float, int, np.ndarray, np.ndarray]:
    """Evaluate a model on strings.

    Returns:
        Negative log-likelihood of all tokens in nats, their number, and the two counts of
        :func:`count_right`.
    """
    import torch

    from fairseq_casrnn.inference.lm_inputs import padded, reads_bos

    closing, device = closing_tokens(dictionary), next(model.parameters()).device
    loss, tokens, right, seen = 0.0, 0, np.zeros(1, np.int64), np.zeros(1, np.int64)
    ordered = sorted(sentences, key=len)
    for batch in split_batches(ordered, map(len, ordered), BATCH_TOKENS):
        pair = padded(batch, dictionary, reads_bos(model))
        source, target = (part.to(device) for part in pair)
        with torch.no_grad():
            # Without targets: with them, an adaptive softmax skips clusters of other tokens.
            table = model.get_normalized_probs(model(source), log_probs=True)
        real = target.ne(dictionary.pad())
        loss -= float(table.gather(-1, target.unsqueeze(-1)).squeeze(-1)[real].double().sum())
        tokens += int(real.sum())
        more = count_right(table, target.cpu(), closing)
        right, seen = add_counts(right, more[0]), add_counts(seen, more[1])
    return loss, tokens, right, seen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn analyze dyck``."""
    parser.add_argument("data", type=Path, help="output folder of casrnn data dyck")
    parser.add_argument("--path", required=True, type=Path, help="checkpoint")
    parser.add_argument(
        "--subset", default="test", help="test (default), valid, train, or test1 (longer strings)"
    )
    parser.add_argument("--csv", type=Path, help="output file for accuracies by distance")
    parser.add_argument("--png", type=Path, help="output file for a plot")
    parser.add_argument(
        "--results",
        type=Path,
        help=(
            "append a JSON line to this file (run.json beside the checkpoint also records "
            "the result)"
        ),
    )


def run(args: argparse.Namespace) -> None:
    """Print perplexity, floor and WCPA; write table and plot. Raises UserError."""
    from fairseq_casrnn.inference.lm_inputs import read_sentences
    from fairseq_casrnn.inference.loading import checkpoint_file, load_language_model

    check_writable(args.csv, args.png, args.results)
    floors = read_floors(args.data, args.subset)
    args.path = checkpoint_file(args.path)
    model, task = load_language_model(args.path, args.data / "data-bin")
    dictionary = task.source_dictionary
    sentences = read_sentences(args.data / "data-bin", args.subset, dictionary)
    loss, tokens, right, seen = measure(model, dictionary, sentences)
    if args.csv is not None:
        write_csv(args.csv, right, seen)
    if args.png is not None:
        plot(args.png, right, seen)
    result = {"perplexity": float(np.exp(loss / tokens)), "tokens": tokens, **floors}
    result["wcpa"], result["wcpa_distance"] = worst(right, seen)
    result |= {"closed": int(seen.sum()), "right": int(right.sum())}
    report(args.subset, result, int(seen[result["wcpa_distance"]]))
    if args.results is not None:
        append_json(args.results, {"path": str(args.path), "subset": args.subset} | result)
        checkpoint = args.path.stem.removeprefix("checkpoint_")
        evaluation = {"checkpoint": checkpoint, "subset": args.subset} | result
        add_evaluation(args.path.parent, evaluation)


def report(subset: str, result: dict, count: int) -> None:
    """Print the perplexity, compared with the floors, and WCPA, that of ``count`` brackets."""
    perplexity, floor, of_samples = (
        result[key] for key in ("perplexity", "floor", "floor_of_samples")
    )
    print(
        f"{subset}: {result['tokens']} tokens, perplexity {perplexity:.4f}; the source's "
        f"{floor:.4f} ({100 * (perplexity / floor - 1):+.2f} %), on these strings {of_samples:.4f} "
        f"({100 * (perplexity / of_samples - 1):+.2f} %)"
    )
    print(
        f"closing brackets: {result['right']} of {result['closed']} right, WCPA "
        f"{result['wcpa']:.3f} (at distance {result['wcpa_distance']}, {count} brackets)"
    )


def read_floors(data: Path, subset: str) -> dict:
    """The perplexity floors of a split in ``dyck.json``. Raises UserError if there are none."""
    path = data / "text" / "dyck.json"
    try:
        splits = parse_json(path.read_bytes())["splits"]
        floors = ("floor", "floor_of_samples")
        good = all(notes[name] > 0 for notes in splits.values() for name in floors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise UserError(f"{path} cannot be read; give a folder of casrnn data dyck")
    if subset not in splits:
        raise UserError(f"{data} has no '{subset}'; --subset is one of {', '.join(splits)}")
    return splits[subset]


def write_csv(path: Path, right: np.ndarray, seen: np.ndarray) -> None:
    """Columns distance, right, all, accuracy. Raises UserError if it cannot be written."""
    with whole_file(path) as file:
        file.write("distance,right,all,accuracy\n")
        for distance in np.flatnonzero(seen):
            counts = int(right[distance]), int(seen[distance])
            file.write(f"{distance},{counts[0]},{counts[1]},{counts[0] / counts[1]:.6f}\n")


def plot(png: Path, right: np.ndarray, seen: np.ndarray) -> None:
    """Plot accuracy by distance. Raises UserError: no matplotlib, or no such folder."""
    from fairseq_casrnn import plotting

    figure, axes = plotting.new_figure(6.4, 4.0)
    occurring = np.flatnonzero(seen)  # distances
    axes.plot(
        occurring, right[occurring] / seen[occurring], lw=1, marker=".", ms=3, color="#c8442c"
    )
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("distance to the opening bracket")
    axes.set_ylabel(f"closing predictions with ≥ {MIN_SHARE} on the right bracket")
    wcpa, distance = worst(right, seen)
    axes.set_title(f"WCPA {wcpa:.3f}, at distance {distance}", loc="left", fontsize=11)
    plotting.save_png(figure, png)
