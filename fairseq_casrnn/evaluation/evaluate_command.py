"""``casrnn evaluate``: scores, predictions and errors of models of ``casrnn train``."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from fairseq_casrnn.console.program import check_numbers, listed
from fairseq_casrnn.data.prepared import prepared_folder, prepared_kind
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.runs import evaluate_and_compare
from fairseq_casrnn.evaluation.significance import BASELINE
from fairseq_casrnn.kinds import LANGUAGE_MODEL, TAGGER, TRAINED_ON, TRANSLATION

FIXED_SUBSETS = {
    TRANSLATION: "translations are scored on the test set",
    LANGUAGE_MODEL: "language models are scored on both valid and test",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Evaluate the runs of casrnn train on the test set. Prints scores, and writes "
        "test.predictions.tsv and test.errors.tsv (the most confident errors first), "
        "with the original text, into each run's folder."
    )
    parser.add_argument(
        "data", type=prepared_folder, metavar="DIR", help="folder from casrnn prepare"
    )
    parser.add_argument("--out", type=Path, help="folder of the runs (default: DIR/out)")
    parser.add_argument(
        "--arch", default="", metavar="NAME[,…]", help="systems or architectures (default: all)"
    )
    parser.add_argument("--seed", default="", metavar="N[,…]", help="seeds (default: all)")
    parser.add_argument(
        "--checkpoint",
        default="best",
        help="best (on validation), last, ema, best:N or last:N (default: best)",
    )
    parser.add_argument("--baseline", metavar="NAME", help=f"system to {BASELINE}")
    parser.add_argument(
        "--subset",
        default="test",
        help=(
            "test, valid or train for classification and tagging (default: test); translations "
            "are scored on test, language models on valid and test"
        ),
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=64,
        help=(
            "batch size for classification and tagging; larger batches need more memory and "
            "do not change results (default: 64)"
        ),
    )
    parser.add_argument(
        "--unconstrained-tags",
        action="store_true",
        help=(
            "for taggers: allow tag sequences that the span scheme forbids (default: as in "
            "training)"
        ),
    )
    # Options of the evaluators that this command does not offer; None: as in training.
    parser.set_defaults(beam=10, extra=[], sentence_reset=None, cache=None)


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if a folder, run or checkpoint cannot be used."""
    kind = TRAINED_ON[prepared_kind(args.data)]
    if args.unconstrained_tags and kind is not TAGGER:
        raise UserError(f"--unconstrained-tags is for taggers, not for {kind.data}; drop it")
    if kind in FIXED_SUBSETS and args.subset != "test":
        raise UserError(f"{FIXED_SUBSETS[kind]}; drop --subset")
    args.out = args.out or args.data / "out"
    args.arch, seeds = listed(args.arch), listed(args.seed)
    check_numbers("--seed", seeds)
    args.seed = list(map(int, seeds))
    evaluator = importlib.import_module(f"fairseq_casrnn.evaluation.{kind.evaluator}")
    evaluate_and_compare(args, evaluator.evaluate)
