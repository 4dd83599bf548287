"""How good tags are: accuracy, and precision, recall and F1 of spans, as conlleval has them."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.spans import as_iob2, spans

# Words, those tagged right; whether tags mark spans at all, spans of the truth, of the model, both.
COUNTS = ("words", "right", "marked", "true", "predicted", "correct")


def counts(
    truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]], marked: bool
) -> list[int]:
    """:data:`COUNTS` of some sentences, to be added to those of others.

    Args:
        truth, found: the tags of each sentence.
        marked: whether they mark spans, which are compared in IOB2, as conlleval reads them; if
            not, the spans' counts are 0.
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
    """``accuracy`` of the tags and, of spans, ``precision``, ``recall``, ``f1``, in per cent.

    Where tags mark spans, accuracy is of IOB2.
    """
    result = {"accuracy": share(total["right"], total["words"])}
    if total["marked"]:
        result["precision"] = share(total["correct"], total["predicted"])
        result["recall"] = share(total["correct"], total["true"])
        result["f1"] = share(2 * total["correct"], total["predicted"] + total["true"])
    return result


def without_spaces(word: str) -> str:
    """A word for a file of columns: white space inside, such as a no-break space, becomes _."""
    return "_".join(word.split()) or "_"


def share(part: float, whole: float) -> float:
    """Per cent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0


def report(truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> str:
    """seqeval's table of precision, recall and F1 by type."""
    from seqeval.metrics import classification_report

    gold, best = ([as_iob2(row) for row in rows] for rows in (truth, found))
    return classification_report(gold, best, digits=4, zero_division=0).rstrip("\n")
