"""Accuracy and macro-F1 from a confusion matrix: rows are true classes, columns predictions."""

from __future__ import annotations

from collections.abc import Sequence


def accuracy(matrix: Sequence[Sequence[float]]) -> float:
    """Percentage on the diagonal; 0 for an empty matrix."""
    total = sum(map(sum, matrix))
    return 100 * sum(row[i] for i, row in enumerate(matrix)) / total if total else 0.0


def macro_f1(matrix: Sequence[Sequence[float]]) -> float:
    """Mean F1 in per cent over the classes that occur as true or predicted classes."""
    scores = []
    for i, row in enumerate(matrix):
        occurs = sum(row) + sum(other[i] for other in matrix)
        if occurs:
            scores.append(2 * row[i] / occurs)
    return 100 * sum(scores) / len(scores) if scores else 0.0


def summary(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> dict:
    """``sentences``, ``accuracy``, ``macro_f1`` and ``confusion`` by class names.

    ``matrix`` may have an additional last row and column for classes that do not occur in training.
    It is called <unk>, and left out if it is empty.
    """
    if len(matrix) > len(classes):
        if any(matrix[-1]):
            classes = [*classes, "<unk>"]
        else:
            matrix = [row[:-1] for row in matrix[:-1]]
    return {
        "sentences": sum(map(sum, matrix)),
        "accuracy": round(accuracy(matrix), 2),
        "macro_f1": round(macro_f1(matrix), 2),
        "confusion": {
            truth: dict(zip(classes, row, strict=True))
            for truth, row in zip(classes, matrix, strict=True)
        },
    }


def as_table(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> list[str]:
    """The matrix as lines of a text table."""
    cells = [["true \\ predicted", *classes]]
    cells += [[name, *map(str, row)] for name, row in zip(classes, matrix, strict=True)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(classes) + 1)]
    return [
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
