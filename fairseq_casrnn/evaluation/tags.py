"""Scores of tags: accuracy, and precision, recall and F1 of spans, as in conlleval."""

from __future__ import annotations

from collections.abc import Sequence

from fairseq_casrnn.data.spans import as_iob2, spans

# Words, correctly tagged words; whether tags mark spans; true, predicted and correct spans.
COUNTS = ("words", "right", "marked", "true", "predicted", "correct")


def counts(
    truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]], marked: bool
) -> list[int]:
    """:data:`COUNTS` of some sentences, which can be summed.

    Args:
        truth, found: the true and the predicted tags of each sentence.
        marked: whether tags mark spans. They are compared in IOB2, like conlleval. Otherwise the
            counts of spans are 0.
    """
    total = dict.fromkeys(COUNTS, 0)
    for gold, best in zip(truth, found, strict=True):
        if marked:
            gold, best = as_iob2(gold), as_iob2(best)
        total["words"] += len(gold)
        total["right"] += sum(a == b for a, b in zip(gold, best, strict=True))
        if marked:
            ours, theirs = spans(gold), spans(best)
            total["marked"] = 1
            total["true"] += len(ours)
            total["predicted"] += len(theirs)
            total["correct"] += len(ours & theirs)
    return [total[name] for name in COUNTS]


def scores(total: dict) -> dict[str, float]:
    """``accuracy`` and, for spans, ``precision``, ``recall`` and ``f1``, in per cent.

    If tags mark spans, accuracy is that of tags in IOB2.
    """
    result = {"accuracy": share(total["right"], total["words"])}
    if total["marked"]:
        result["precision"] = share(total["correct"], total["predicted"])
        result["recall"] = share(total["correct"], total["true"])
        result["f1"] = share(2 * total["correct"], total["predicted"] + total["true"])
    return result


def share(part: float, whole: float) -> float:
    """``part / whole`` in per cent; 0 if ``whole`` is 0."""
    return 100 * part / whole if whole else 0.0


def report(truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> str:
    """seqeval's table of precision, recall and F1 by type."""
    from seqeval.metrics import classification_report

    gold, best = ([as_iob2(row) for row in rows] for rows in (truth, found))
    return classification_report(gold, best, digits=4, zero_division=0).rstrip("\n")
