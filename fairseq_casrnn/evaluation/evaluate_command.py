"""``casrnn evaluate``: scores, predictions and errors of models of ``casrnn train``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.console.program import show
from fairseq_casrnn.data.originals import read_originals
from fairseq_casrnn.data.prepared import prepared_folder
from fairseq_casrnn.data.text import detokenize_lines, read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.prediction_files import (
    CLASSES,
    TABLE,
    TRANSLATIONS,
    WORDS,
    as_lines,
)
from fairseq_casrnn.evaluation.runs import choose_checkpoint, evaluate_each, write_predictions
from fairseq_casrnn.files import whole_file
from fairseq_casrnn.recipes.options import check_numbers
from fairseq_casrnn.recipes.runs import check_trained_on
from fairseq_casrnn.recipes.train_command import kind_of

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
        help="best (on validation), last, best:N or last:N (default: best)",
    )
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
    kind = kind_of(args.folder)
    if args.unconstrained_tags and kind != "tagging":
        raise UserError(f"--unconstrained-tags is for taggers, not for {kind}; drop it")
    evaluate = EVALUATORS[kind]
    args.out = args.out or args.folder / "out"
    args.arch = args.arch.replace(",", " ").split()
    seeds = args.seed.replace(",", " ").split()
    check_numbers("--seed", seeds)
    args.seed = list(map(int, seeds))
    check_trained_on(str(args.folder), str(args.out), args.arch, seeds)
    for _ in evaluate_each(args, lambda one: evaluate(one, args)):
        pass


def evaluate_classifier(run: Path, args: argparse.Namespace) -> dict:
    """Classify with a run's checkpoint, write and print the result, return its scores."""
    from fairseq_casrnn.evaluation.confusion import as_table
    from fairseq_casrnn.evaluation.evaluate_classifier import classify

    checkpoint = choose_checkpoint(run, args.checkpoint)
    result = classify(args.folder, checkpoint, args.subset, args.batch_size)
    found = result.pop("predictions")
    examples = read_originals(args.folder / "data-bin", args.subset, len(found))
    rows = [
        (truth, best, value, *example.values())
        for (truth, best, value), example in zip(found, examples, strict=True)
    ]
    header = (*CLASSES, *examples[0])
    write_predictions(run, args.subset, TABLE, as_lines([header, *rows]), result)
    wrong = [row for row in rows if row[0] != row[1]]
    write_errors(run, args.subset, header, wrong)
    confusion = result.pop("confusion")
    show(as_table([list(row.values()) for row in confusion.values()], list(confusion)))
    print(
        f"{run.parent.name} {run.name}: accuracy {result['accuracy']:.2f}, macro-F1 "
        f"{result['macro_f1']:.2f} on {result['sentences']} texts of {args.subset}"
    )
    show_files(run, args.subset, len(wrong), "error{}")
    return {"checkpoint": args.checkpoint, "subset": args.subset, **result}


def evaluate_tagger(run: Path, args: argparse.Namespace) -> dict:
    """Tag with a run's checkpoint, write and print the result, return its scores.

    The probability in the files is that of all tags of the sentence.
    """
    from fairseq_casrnn.evaluation.evaluate_tagger import tag

    checkpoint = choose_checkpoint(run, args.checkpoint)
    options = {"unconstrained_tags": True} if args.unconstrained_tags else {}
    result = tag(args.folder, checkpoint, args.subset, args.batch_size, True, **options)
    found, values, by_type = (result.pop(name) for name in ("rows", "confidence", "report"))
    sentences = read_originals(args.folder / "data-bin", args.subset, len(found))
    rows = [
        [
            (word, gold, best, round(value, 4))
            for word, (_, gold, best) in zip(sentence["words"], tags, strict=True)
        ]
        for sentence, tags, value in zip(sentences, found, values, strict=True)
    ]
    text = "\n".join([as_lines([WORDS]), *map(as_lines, rows)])
    write_predictions(run, args.subset, TABLE, text, result)
    wrong = [
        (gold, best, value, word, sentence["line"], " ".join(sentence["words"]))
        for sentence, tags in zip(sentences, rows, strict=True)
        for word, gold, best, value in tags
        if gold != best
    ]
    write_errors(run, args.subset, (*CLASSES, "word", "line", "sentence"), wrong)
    if by_type:
        show(by_type.split("\n"))
    names = [name for name in ("f1", "precision", "recall", "accuracy") if name in result]
    numbers = ", ".join(f"{name} {result[name]:.2f}" for name in names).replace("f1", "F1")
    print(
        f"{run.parent.name} {run.name}: {numbers} on {result['words']} words, "
        f"{result['sentences']} sentences of {args.subset}"
    )
    show_files(run, args.subset, len(wrong), "word{} with a wrong tag")
    return {"checkpoint": args.checkpoint, "subset": args.subset, **result}


def evaluate_translation(run: Path, args: argparse.Namespace) -> dict:
    """Translate the test set with a run's checkpoint, write and print the result.

    Raises:
        UserError: the subset is not the test set; only its references are stored.
    """
    from fairseq_casrnn.evaluation import evaluate_translation as translating
    from fairseq_casrnn.evaluation.bleu import read_generated

    if args.subset != "test":
        raise UserError("translations are scored on the test set; drop --subset")
    result = translating.evaluate(args.folder, run, args.checkpoint, BEAM)
    languages, text = translating.languages(args.folder), args.folder / "text"
    source, reference = (read_lines(text / f"test.raw.{code}") for code in languages)
    name = f"generated.{choose_checkpoint(run, args.checkpoint).stem}.beam{BEAM}.txt"
    found = detokenize_lines(read_generated(run / name, len(source)), languages[1])
    rows = zip(source, reference, found, strict=True)
    write_predictions(run, "test", TABLE, as_lines([TRANSLATIONS, *rows]), result)
    print(
        f"{run.parent.name} {run.name}: BLEU {result['bleu']:.2f} (tokenised), sacreBLEU "
        f"{result['sacrebleu']:.2f} ({result['signature']}) on {result['sentences']} sentences"
    )
    show([f"predictions: {run / f'test.{TABLE}'}"])
    return {"subset": "test", **result}


def evaluate_language_model(run: Path, args: argparse.Namespace) -> dict:
    """Perplexity of the validation and test sets with a run's checkpoint, line by line."""
    from fairseq_casrnn.evaluation.evaluate_lm import evaluate

    result = evaluate(args.folder, run, args.checkpoint, sentences=True)
    print(
        f"{run.parent.name} {run.name}: perplexity {result['valid']:.2f} valid, "
        f"{result['test']:.2f} test ({result['test_tokens']} tokens)"
    )
    return result


def write_errors(run: Path, subset: str, header: Sequence[str], wrong: Sequence[Sequence]) -> None:
    """Write ``SUBSET.errors.tsv``, the most probable errors first (the third column)."""
    rows = sorted(wrong, key=lambda row: -row[2])
    with whole_file(run / f"{subset}.errors.tsv") as file:
        file.write(as_lines([header, *rows]))


def show_files(run: Path, subset: str, count: int, what: str) -> None:
    """Print the names of the files that were written.

    Args:
        run: the folder of the run.
        subset: the split.
        count: number of errors.
        what: name of an error, with ``{}`` where the plural has an s.
    """
    errors = "no errors"
    if count:
        first = ", the most confident first" if count > 1 else ""
        name = what.format("s" if count > 1 else "")
        errors = f"{count} {name}{first}: {run / f'{subset}.errors.tsv'}"
    show([f"predictions: {run / f'{subset}.{TABLE}'}", errors])


EVALUATORS = {
    "classification": evaluate_classifier,
    "tagging": evaluate_tagger,
    "translation": evaluate_translation,
    "language-model": evaluate_language_model,
}
