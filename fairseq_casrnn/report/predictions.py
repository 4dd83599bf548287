"""Read ``SUBSET.predictions.tsv`` of a run, which evaluations write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.prediction_files import Table, read_table
from fairseq_casrnn.kinds import TAGGER, TRANSLATION

BINS = 10
MOST_CLASSES = 20
OTHERS = "(others)"


@dataclass
class Predictions:
    """A model's predictions on a test set.

    Args:
        columns: names of an example's columns after gold, predicted and probability.
        examples: (gold, predicted, probability, columns…) of each sentence or word.
        confidences: (probability, whether it is correct) of each sentence or word.
        translations: (source, reference, translation) of each sentence.
    """

    columns: list[str] = field(default_factory=list)
    examples: list[tuple] = field(default_factory=list)
    confidences: list[tuple[float, bool]] = field(default_factory=list)
    translations: list[list[str]] = field(default_factory=list)

    def errors(self, most: int) -> list[tuple]:
        """At most ``most`` wrong examples, the most confident first."""
        wrong = [example for example in self.examples if example[0] != example[1]]
        return sorted(wrong, key=lambda example: -example[2])[:most]

    def samples(self, most: int) -> Sequence[Sequence]:
        """At most ``most`` examples or translations, evenly spaced in the test set."""
        rows = self.translations or self.examples
        return rows[:: max(1, -(-len(rows) // most))]

    def confusion(self) -> tuple[list[str], list[list[int]]]:
        """Classes and counts, a row for each true class; rare classes are merged."""
        pairs = Counter((gold, found) for gold, found, *_ in self.examples)
        seen = Counter(name for gold, found, *_ in self.examples for name in (gold, found))
        classes = sorted(name for name, _ in seen.most_common(MOST_CLASSES))
        classes += [OTHERS] * (len(seen) > MOST_CLASSES)
        index = {name: number for number, name in enumerate(classes)}
        counts = [[0] * len(classes) for _ in classes]
        for (gold, found), count in pairs.items():
            last = len(classes) - 1
            counts[index.get(gold, last)][index.get(found, last)] += count
        return classes, counts

    def calibration(self) -> list[tuple[float, float, int]]:
        """(mean probability, accuracy, count) for each tenth of the range of probabilities."""
        bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
        for probability, right in self.confidences:
            bins[min(int(probability * BINS), BINS - 1)].append((probability, right))
        return [
            (sum(p for p, _ in one) / len(one), sum(right for _, right in one) / len(one), len(one))
            for one in bins
            if one
        ]

    def calibration_error(self) -> float:
        """Expected calibration error, mean |probability − accuracy| (Naeini et al. 2015)."""
        total = sum(count for _, _, count in self.calibration())
        return sum(count * abs(p - share) for p, share, count in self.calibration()) / total


def read_predictions(path: Path) -> Predictions:
    """Read the predictions in a file.

    Raises:
        UserError: it cannot be read, or is damaged.
    """
    table = read_table(path)
    if table.kind is TRANSLATION:
        return Predictions(translations=[row for _, row in table.rows])
    if table.kind is TAGGER:
        return _tagged(path, table)
    found = Predictions(columns=table.header[3:])
    for number, (gold, predicted, probability, *rest) in table.rows:
        value = _number(path, number, probability)
        found.examples.append((gold, predicted, value, *rest))
        found.confidences.append((value, gold == predicted))
    return found


def _tagged(path: Path, table: Table) -> Predictions:
    """The predictions in a tagger's file. Raises UserError if a probability is invalid."""
    found = Predictions(columns=["word", "sentence"])
    for sentence in table.sentences():
        text = " ".join(cells[0] for _, cells in sentence)
        values, right = [], True
        for number, (word, gold, predicted, probability, *_) in sentence:
            values.append(_number(path, number, probability))
            right &= gold == predicted
            found.examples.append((gold, predicted, values[-1], word, text))
        if len(set(values)) == 1:  # the probability of all tags of the sentence
            found.confidences.append((values[0], right))
        else:
            found.confidences += [
                (example[2], example[0] == example[1]) for example in found.examples[-len(values) :]
            ]
    return found


def _number(path: Path, line: int, text: str) -> float:
    """Parse a probability. Raises UserError if it is not one."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UserError(
            f"{path} is damaged: line {line} has the probability '{text}'; evaluate the run again"
        )
    return value
