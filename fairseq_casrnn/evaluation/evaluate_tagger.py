"""Tag a test set with trained runs, for ``casrnn evaluate`` and the recipes' ``evaluate.sh``.

``python -m fairseq_casrnn.evaluation.evaluate_tagger --data DIR --out DIR`` evaluates
``DIR/NAME/seedN``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main, show
from fairseq_casrnn.data.columns import without_spaces
from fairseq_casrnn.data.originals import read_originals
from fairseq_casrnn.data.spans import as_iob2
from fairseq_casrnn.evaluation.prediction_files import CLASSES, WORDS, as_lines
from fairseq_casrnn.evaluation.runs import (
    Result,
    add_subset_arguments,
    choose_checkpoint,
    evaluate_and_compare,
    predict,
    run_name,
    with_settings,
    write_errors,
    write_predictions,
)
from fairseq_casrnn.evaluation.tags import COUNTS, counts, report, scores
from fairseq_casrnn.inference.loading import load_hub
from fairseq_casrnn.kinds import TAGGER


def tag(
    data: Path,
    checkpoint: Path,
    subset: str,
    batch_size: int = 64,
    unconstrained_tags: bool = False,
) -> dict:
    """Tag ``subset`` of a prepared folder.

    Args:
        data: the folder.
        checkpoint: checkpoint of a tagger.
        subset: the split.
        batch_size: number of sentences in a batch.
        unconstrained_tags: whether to allow tags that the spans' scheme forbids; otherwise as in
            training.

    Returns:
        ``sentences``, ``words`` (their numbers), ``seconds``, the scores (:func:`.tags.scores`) and
        ``rows``: (word, true tag, predicted tag) for each word of each sentence. The words are
        those of the dictionary, and span tags are in IOB2, as for accuracy. ``confidence`` is the
        probability of each sentence's tags. ``report`` is seqeval's table by type, or None if tags
        mark no spans. For spans, ``constrained_tags`` says whether decoding excludes sequences that
        the scheme forbids.

    Raises:
        UserError: the checkpoint or data cannot be used.
    """
    options = {"unconstrained_tags": True} if unconstrained_tags else {}
    hub = load_hub(TAGGER, checkpoint, str(data / "data-bin"), **options)
    task = hub.task
    dataset, best, seconds = predict(hub, subset, batch_size)
    found = [tags for tags, _ in best]
    truth = [task.tag_names(dataset.tags(i)) for i in range(len(dataset))]
    words = [
        [without_spaces(task.dictionary[int(token)]) for token in dataset.words[i][:-1]]
        for i in range(len(dataset))
    ]
    gold, predicted = truth, found
    if task.are_spans:
        gold, predicted = ([as_iob2(row) for row in rows] for rows in (truth, found))
    total = dict(zip(COUNTS, counts(gold, predicted, task.are_spans), strict=True))
    return {
        "sentences": len(truth),
        "words": total["words"],
        **{name: round(value, 2) for name, value in scores(total).items()},
        **({"constrained_tags": hub.is_constrained} if task.are_spans else {}),
        "seconds": seconds,
        "rows": [
            list(zip(*columns, strict=True)) for columns in zip(words, gold, predicted, strict=True)
        ],
        "confidence": [probability for _, probability in best],
        "report": report(truth, found) if task.are_spans else None,
    }


def evaluate(run: Path, args: argparse.Namespace) -> Result:
    """Tag with a run's checkpoint, write and print the result, return its scores.

    ``SUBSET.json`` has the scores, and ``SUBSET.predictions.tsv`` a line for each word
    (:mod:`.prediction_files`), with spans in IOB2 and the probability of all tags of the sentence.
    Where the data has its original text, the words are those of the text, and ``SUBSET.errors.tsv``
    has the errors.

    Args:
        run: its folder.
        args: options of :func:`.runs.add_subset_arguments`, and ``unconstrained_tags``.

    Raises:
        UserError: the checkpoint or data cannot be used.
    """
    data, subset, path = args.data, args.subset, choose_checkpoint(run, args.checkpoint)
    result = tag(data, path, subset, args.batch_size, args.unconstrained_tags)
    found, values, by_type = (result.pop(name) for name in ("rows", "confidence", "report"))
    examples = read_originals(data / "data-bin", subset, len(found))
    rows = []
    for example, tags, value in zip(examples, found, values, strict=True):
        words = example.get("words") or [word for word, _, _ in tags]
        rows.append(
            [
                (word, gold, best, round(value, 4))
                for word, (_, gold, best) in zip(words, tags, strict=True)
            ]
        )
    text = "\n".join([as_lines([WORDS]), *map(as_lines, rows)])
    write_predictions(run, subset, text, result)
    if by_type:
        show(by_type.split("\n"))
    titles = {"f1": "F1", "accuracy": "accuracy of tags in IOB2" if by_type else "accuracy"}
    names = [name for name in ("f1", "precision", "recall", "accuracy") if name in result]
    numbers = ", ".join(f"{titles.get(name, name)} {result[name]:.2f}" for name in names)
    size = f"{result['words']} words, {result['sentences']} sentences"
    print(f"{run_name(run)}: {numbers} on {size} of {subset}", flush=True)
    if examples[0]:
        wrong = [
            (gold, best, value, word, example["line"], " ".join(example["words"]))
            for example, tags in zip(examples, rows, strict=True)
            for word, gold, best, value in tags
            if gold != best
        ]
        header = (*CLASSES, "word", "line", "sentence")
        write_errors(run, subset, header, wrong, "word{} with a wrong tag")
    return with_settings(result, run, args)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.evaluate_tagger",
        description="Tag the test set with trained models; print and record accuracy or F1.",
    )
    add_subset_arguments(parser)
    parser.add_argument(
        "--unconstrained-tags",
        action="store_true",
        help="do not exclude tags that the spans' scheme forbids (default: as in training)",
    )
    args = parser.parse_args(argv)
    return run_main(lambda: evaluate_and_compare(args, evaluate))


if __name__ == "__main__":
    sys.exit(main())
