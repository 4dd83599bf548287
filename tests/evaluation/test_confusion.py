"""Accuracy and macro-F1 equal those of scikit-learn."""

import numpy
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from fairseq_casrnn.evaluation.confusion import accuracy, as_table, macro_f1, summary


@pytest.mark.parametrize("seed", range(5))
def test_against_scikit_learn(seed):
    rng = numpy.random.RandomState(seed)
    truth, predicted = rng.randint(0, 4, (2, 30))
    if seed == 3:
        predicted[:] = 1
    matrix = confusion_matrix(truth, predicted, labels=range(4)).tolist()
    assert accuracy(matrix) == pytest.approx(100 * accuracy_score(truth, predicted))
    expected = 100 * f1_score(truth, predicted, average="macro", zero_division=0)
    assert macro_f1(matrix) == pytest.approx(expected)


def test_absent_classes_do_not_count():
    assert macro_f1([[2, 0, 0], [1, 1, 0], [0, 0, 0]]) == pytest.approx(100 * (0.8 + 2 / 3) / 2)
    # a class that is predicted but never true counts with 0
    assert macro_f1([[1, 1], [0, 0]]) == pytest.approx(100 * (2 / 3) / 2)
    assert accuracy([[0, 0], [0, 0]]) == macro_f1([[0, 0], [0, 0]]) == 0


def test_summary_and_table():
    matrix = [[3, 1], [0, 4]]
    assert summary(matrix, ["no", "yes"]) == {
        "sentences": 8,
        "accuracy": 87.5,
        "macro_f1": 87.3,
        "confusion": {"no": {"no": 3, "yes": 1}, "yes": {"no": 0, "yes": 4}},
    }
    assert as_table(matrix, ["no", "yes"]) == [
        "true \\ predicted  no  yes",
        "no                 3    1",
        "yes                0    4",
    ]
