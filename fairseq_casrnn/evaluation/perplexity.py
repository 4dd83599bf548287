"""Perplexity of a language model on a continuous text or on single sentences."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.evaluation.lm_scores import Scores, read_streams, score_sentences
from fairseq_casrnn.files import check_writable, whole_file
from fairseq_casrnn.inference.lm_inputs import read_sentences
from fairseq_casrnn.inference.loading import load_language_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn perplexity``."""
    parser.add_argument("data", type=Path, help="output folder of fairseq-preprocess")
    parser.add_argument(
        "--path", required=True, type=Path, help="file from casrnn pack, checkpoint, or its folder"
    )
    parser.add_argument("--subset", default="test", help="split to score (default: test)")
    parser.add_argument(
        "--sentence-reset", action="store_true", help="score each sentence by itself, after </s>"
    )
    parser.add_argument(
        "--streams",
        type=int,
        default=1,
        help="number of streams into which the text is divided (default: 1)",
    )
    parser.add_argument(
        "--soft-routing",
        action="store_true",
        help="mix the cells of a second-order LSTM as in training, at its final temperature",
    )
    parser.add_argument(
        "--cache",
        type=int,
        metavar="N",
        help="mix in the predictions of a cache of the last N words, after Grave et al. (2017)",
    )
    for name, meaning in (("weight", "weight λ in the mixture"), ("flatness", "parameter θ")):
        parser.add_argument(
            f"--cache-{name}",
            type=float,
            metavar="X",
            help=f"the cache's {meaning} (default: the best on the split 'valid')",
        )
    parser.add_argument(
        "--scores",
        type=Path,
        metavar="FILE",
        help="write each sentence's number of tokens and log-probability",
    )


def enable_soft_routing(model, path: str | os.PathLike) -> None:
    """Mix the cells of ``model`` in evaluation as in training.

    Raises:
        UserError: it is not a second-order LSTM with attention.
    """
    from fairseq_casrnn.layers import SecondOrderLSTM

    stacks = [m for m in model.modules() if isinstance(m, SecondOrderLSTM)]
    if not any(stack.routing == "attention" for stack in stacks):
        raise UserError(
            f"--soft-routing needs a second-order LSTM with attention, which {path} is not; "
            "drop the option"
        )
    for stack in stacks:
        stack.soft_routing = True


def run(args: argparse.Namespace) -> None:
    """Print tokens, loss and perplexity. Raises UserError."""
    check_options(args)
    check_writable(args.scores)
    model, task = load_language_model(args.path, args.data)
    if args.soft_routing:
        enable_soft_routing(model, args.path)
    if not args.sentence_reset and reads_single_sentences(task):
        print(
            f"warning: {args.path} was trained on single sentences and has not learnt to continue "
            "from one to the next; --sentence-reset scores each by itself",
            file=sys.stderr,
        )
    dictionary = task.source_dictionary
    sentences = read_sentences(args.data, args.subset, dictionary)
    if args.sentence_reset:
        scores = score_sentences(model, dictionary, sentences)
    elif args.cache is not None:
        scores = score_with_cache(args, model, dictionary, sentences)
    else:
        scores = read_streams(model, dictionary, sentences, args.streams, keep=False).scores
    if args.scores is not None:
        write_scores(args.scores, scores)
    print(scores)


def reads_single_sentences(task) -> bool:
    """Whether the task of a trained language model starts each sentence anew."""
    options = task.args
    if hasattr(options, "sentence_reset"):  # of StatefulLanguageModelingTask
        return options.sentence_reset
    return options.sample_break_mode == "eos"


def check_options(args: argparse.Namespace) -> None:
    """Raise UserError if options contradict each other or are out of range."""
    from fairseq_casrnn.evaluation import cache

    check_at_least(1, streams=args.streams, cache=args.cache)
    if args.sentence_reset and args.streams > 1:
        raise UserError("--streams is for a continuous text; drop it or --sentence-reset")
    settings = (args.cache_weight, args.cache_flatness)
    if args.cache is None:
        if settings != (None, None):
            raise UserError("--cache-weight and --cache-flatness need --cache N; give that, too")
        return
    if args.sentence_reset:
        raise UserError("--cache is for a continuous text; drop it or --sentence-reset")
    if None not in settings:
        cache.Cache(args.cache, *settings)
    elif settings != (None, None):
        raise UserError("--cache-weight and --cache-flatness belong together; give both or neither")


def score_with_cache(args: argparse.Namespace, model, dictionary, sentences: Sequence) -> Scores:
    """Scores with the cache of ``args``; if it is tuned on validation, print its parameters."""
    from fairseq_casrnn.evaluation.cache import Cache, score_with_cache, tune

    if args.cache_weight is not None:
        cache = Cache(args.cache, args.cache_weight, args.cache_flatness)
        return score_with_cache(read_streams(model, dictionary, sentences, args.streams), cache)
    valid = sentences
    if args.subset != "valid":
        remedy = "give --cache-weight and --cache-flatness, which are tuned there by default"
        valid = read_sentences(args.data, "valid", dictionary, remedy)
    text = read_streams(model, dictionary, valid, args.streams)
    cache = tune(text, args.cache)
    before, scores = text.scores.perplexity, score_with_cache(text, cache)
    print(
        f"cache of {cache}: best on valid, perplexity {scores.perplexity:.2f}, without {before:.2f}"
    )
    if args.subset == "valid":
        return scores
    del text  # its features
    return score_with_cache(read_streams(model, dictionary, sentences, args.streams), cache)


def write_scores(path: Path, scores: Scores) -> None:
    """Write a line "tokens<TAB>log-probability" for each sentence, atomically.

    The first token of a stream, which is not predicted, does not count.
    """
    with whole_file(path) as file:
        for count, score in zip(scores.predicted(), scores.sentences(), strict=True):
            file.write(f"{count}\t{score:.6f}\n")
