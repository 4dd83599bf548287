"""The validations in the record of a training."""

from types import SimpleNamespace

from fairseq_casrnn.runs import record
from fairseq_casrnn.runs.training import best, write


def test_the_last_of_equal_validations_is_the_best():
    """fairseq, too, overwrites checkpoint_best.pt if the metric is equal."""
    history = [{"ppl": 5.0, "epoch": 1}, {"ppl": 4.0, "epoch": 2}, {"ppl": 4.0, "epoch": 3}]
    assert best(history, "ppl", maximize=False)["epoch"] == 3
    assert best(history, "ppl", maximize=True)["epoch"] == 1
    assert best(history, "bleu", maximize=True) == {}


def test_a_checkpoint_after_a_signal_keeps_the_validation_of_its_update(tmp_path):
    """The signal came during the validation, and so the update has a second checkpoint."""
    options = SimpleNamespace(
        save_dir=tmp_path,
        no_save=False,
        best_checkpoint_metric="ppl",
        maximize_best_checkpoint_metric=False,
    )
    trainer = SimpleNamespace(
        is_data_parallel_master=True,
        run_description={},
        validation_scores={"ppl": 5.0},
        cfg=SimpleNamespace(checkpoint=options),
        cumulative_training_time=lambda: 1.0,
        get_num_updates=lambda: 10,
    )
    for val_loss in (5.0, None, 5.0):  # the last one is of a new training
        write(None, options, trainer, SimpleNamespace(epoch=1), val_loss)
        found = record.read(tmp_path)
        assert found["validation"] == [found["best"]] == [{"epoch": 1, "updates": 10, "ppl": 5.0}]
