"""``casrnn evaluate``: scores, predictions and errors of models of ``casrnn train``."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_casrnn.data.prepared import prepared_folder, prepared_kind
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.runs import evaluate_and_compare
from fairseq_casrnn.recipes.options import BASELINE, check_numbers, listed
from fairseq_casrnn.recipes.runs import check_trained_on

BEAM = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Evaluate the runs of casrnn train on the test set. Prints scores, and writes "
        "test.predictions.tsv and test.errors.tsv (the most confident errors first), "
        "with the original text, into each run's folder."
    )
    parser.add_argument(
        "folder", type=prepared_folder, metavar="DIR", help="folder from casrnn prepare"
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


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if a folder, run or checkpoint cannot be used."""
    kind = prepared_kind(args.folder)
    if args.unconstrained_tags and kind != "tagging":
        raise UserError(f"--unconstrained-tags is for taggers, not for {kind}; drop it")
    evaluate = EVALUATORS[kind]
    args.out = args.out or args.folder / "out"
    args.arch, seeds = listed(args.arch), listed(args.seed)
    check_numbers("--seed", seeds)
    args.seed = list(map(int, seeds))
    check_trained_on(str(args.folder), str(args.out), args.arch, seeds)
    evaluate_and_compare(args, lambda one: evaluate(one, args))


def evaluate_classifier(run: Path, args: argparse.Namespace) -> dict:
    """Classify with a run's checkpoint; see :func:`.evaluate_classifier.evaluate`."""
    from fairseq_casrnn.evaluation.evaluate_classifier import evaluate

    return evaluate(args.folder, run, args.checkpoint, args.subset, args.batch_size)


def evaluate_tagger(run: Path, args: argparse.Namespace) -> dict:
    """Tag with a run's checkpoint; see :func:`.evaluate_tagger.evaluate`."""
    from fairseq_casrnn.evaluation.evaluate_tagger import evaluate

    which = (args.checkpoint, args.subset, args.batch_size, args.unconstrained_tags)
    return evaluate(args.folder, run, *which)


def evaluate_translation(run: Path, args: argparse.Namespace) -> dict:
    """Translate the test set with a run's checkpoint; see :func:`.evaluate_translation.evaluate`.

    Raises:
        UserError: the subset is not the test set; only its references are stored.
    """
    from fairseq_casrnn.evaluation.evaluate_translation import evaluate

    if args.subset != "test":
        raise UserError("translations are scored on the test set; drop --subset")
    return evaluate(args.folder, run, args.checkpoint, BEAM)


def evaluate_language_model(run: Path, args: argparse.Namespace) -> dict:
    """Perplexities with a run's checkpoint, read as in training; :func:`.evaluate_lm.evaluate`.

    Raises:
        UserError: a subset is chosen.
    """
    from fairseq_casrnn.evaluation.evaluate_lm import evaluate

    if args.subset != "test":
        raise UserError("language models are scored on both valid and test; drop --subset")
    return evaluate(args.folder, run, args.checkpoint)


EVALUATORS = {
    "classification": evaluate_classifier,
    "tagging": evaluate_tagger,
    "translation": evaluate_translation,
    "language-model": evaluate_language_model,
}
