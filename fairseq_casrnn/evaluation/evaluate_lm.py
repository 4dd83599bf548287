"""Perplexity of trained runs, for ``casrnn evaluate`` and the recipes' ``evaluate.sh``.

``python -m fairseq_casrnn.evaluation.evaluate_lm --data DIR --out DIR`` evaluates
``DIR/ARCH/seedN``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_casrnn.console.program import Parser, captured_log, run_main
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.evaluation import cache
from fairseq_casrnn.evaluation.lm_scores import read_streams, score_sentences
from fairseq_casrnn.evaluation.perplexity import reads_single_sentences
from fairseq_casrnn.evaluation.runs import (
    Result,
    add_run_arguments,
    choose_checkpoint,
    compare_systems,
    evaluate_and_compare,
    run_name,
)
from fairseq_casrnn.inference.lm_inputs import read_sentences
from fairseq_casrnn.inference.loading import load_language_model

SUBSETS = ("valid", "test")


def evaluate(run: Path, args: argparse.Namespace) -> Result:
    """Score the validation and test sets with a run's checkpoint, print and return the result.

    Args:
        run: its folder.
        args: options of :func:`.runs.add_run_arguments`; ``sentence_reset``: score each sentence by
            itself instead of a continuous text, None: as in training; ``cache``: if not None, also
            score with a cache of this many words, tuned on validation.

    Returns:
        ``checkpoint``, ``mode``, ``parameters``, and for each split its perplexity (``SPLIT``) and
        ``SPLIT_tokens``; with a cache also ``cache``, ``cache_weight``, ``cache_flatness`` and
        ``SPLIT_with_cache``.

    Raises:
        UserError: the checkpoint or data cannot be used.
    """
    binarised, sentences, size = args.data / "data-bin", args.sentence_reset, args.cache
    path = choose_checkpoint(run, args.checkpoint)
    with captured_log():
        model, task = load_language_model(path, binarised)
    if sentences is None:
        sentences = reads_single_sentences(task)
    dictionary = task.source_dictionary
    result: Result = {"checkpoint": args.checkpoint}
    result["mode"] = "sentences" if sentences else "continuous"
    result["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    chosen = None
    for subset in SUBSETS:
        with captured_log():
            remedy = "prepare the data again"
            lines = read_sentences(binarised, subset, dictionary, remedy)
            if sentences:
                scores = score_sentences(model, dictionary, lines)
            else:
                text = read_streams(model, dictionary, lines, keep=size is not None)
                scores = text.scores
        result |= {subset: round(scores.perplexity, 4), f"{subset}_tokens": scores.tokens}
        if size is None:
            continue
        chosen = chosen or cache.tune(text, size)
        scores = cache.score_with_cache(text, chosen)
        result[f"{subset}_with_cache"] = round(scores.perplexity, 4)
    if chosen is not None:
        result |= {f"cache_{name}": getattr(chosen, name) for name in ("weight", "flatness")}
        result["cache"] = size
    print(
        f"{run_name(run)}: perplexity {result['valid']:.2f} valid, {result['test']:.2f} test "
        f"({result['test_tokens']} tokens, {result['mode']}, {result['parameters']:,} parameters)",
        flush=True,
    )
    if size is not None:
        print(
            f"{run_name(run)}, cache of {size} words: perplexity "
            f"{result['valid_with_cache']:.2f} valid, {result['test_with_cache']:.2f} test "
            f"(weight {result['cache_weight']:.3g}, flatness {result['cache_flatness']:g})",
            flush=True,
        )
    return result


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.evaluate_lm",
        description="Print and record the perplexity of trained models.",
    )
    add_run_arguments(parser)
    parser.set_defaults(subset="test")
    parser.add_argument(
        "--sentence-reset", action="store_true", help="score each sentence by itself"
    )
    parser.add_argument(
        "--cache", type=int, metavar="N", help="also score with a cache of the last N words"
    )
    args = parser.parse_args(argv)
    return run_main(lambda: _evaluate_all(args))


def _evaluate_all(args: argparse.Namespace) -> None:
    if not (args.data / "data-bin" / "dict.txt").is_file():
        raise UserError(
            f"{args.data} is not a prepared folder (no data-bin with a dict.txt in it); give the "
            "folder that casrnn prepare language-model or a recipe has written"
        )
    if args.cache is not None:
        if args.sentence_reset:
            raise UserError("--cache is for a continuous text; drop it or --sentence-reset")
        check_at_least(1, cache=args.cache)
    results = evaluate_and_compare(args, evaluate)
    if args.cache is not None:
        cached = {f"{arch}, cache": of for arch, of in results.items()}
        baseline = args.baseline and f"{args.baseline}, cache"
        compare_systems(cached, "test_with_cache", baseline)


if __name__ == "__main__":
    sys.exit(main())
