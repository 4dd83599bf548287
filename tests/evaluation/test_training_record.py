"""The best validation in the record of a training."""

from fairseq_casrnn.runs.training import best


def test_the_last_of_equal_validations_is_the_best():
    """fairseq, too, overwrites checkpoint_best.pt if the metric is equal."""
    history = [{"ppl": 5.0, "epoch": 1}, {"ppl": 4.0, "epoch": 2}, {"ppl": 4.0, "epoch": 3}]
    assert best(history, "ppl", maximize=False)["epoch"] == 3
    assert best(history, "ppl", maximize=True)["epoch"] == 1
    assert best(history, "bleu", maximize=True) == {}
