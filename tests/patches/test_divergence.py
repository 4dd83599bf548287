"""Models and losses that are not finite, in validation."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from fairseq_cli import train

from fairseq_casrnn.diagnostics.explain import explain
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches import divergence


def trainer(weight=0.0):
    model = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(model.weight, weight)
    return SimpleNamespace(get_model=lambda: model, get_num_updates=lambda: 7)


def test_undefined_metric_counts_as_none():
    """Weights and losses are finite, so training goes on, but the metric is ignored."""

    def validate(cfg, trainer):
        return [float("nan"), 3.0]

    assert divergence.check_validation(validate, None, trainer()) == [None, 3.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_validation_with_weights_that_are_not_finite(value):
    with pytest.raises(UserError, match="training has diverged: after 7 updates the weights"):
        train.validate(None, trainer(value), None, None, None)


def test_weights_that_are_not_finite_are_not_saved():
    with pytest.raises(UserError, match=r"the weights weight are not finite, and they were not s"):
        checkpoint_utils.save_checkpoint(None, trainer(float("nan")), None, None)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(loss):
    with pytest.raises(UserError, match=rf"validation loss is {loss}, and the model was not saved"):
        train.get_valid_stats(None, trainer(), {"loss": loss}, True)


def test_gradient_norms_of_several_processes():
    """fairseq compares their norms before it checks whether they are finite."""
    workers = SimpleNamespace(
        _grad_norm_buf=torch.zeros(2),
        data_parallel_rank=0,
        data_parallel_process_group=None,
        cfg=SimpleNamespace(common=SimpleNamespace(amp=False)),
    )

    def explanation(ours, theirs):
        def gather(buffer, group):
            buffer[1] = theirs

        with (
            mock.patch("fairseq.distributed.utils.all_reduce", gather),
            pytest.raises(FloatingPointError) as caught,
        ):
            Trainer._check_grad_norms(workers, torch.tensor(ours))
        return explain(caught.value)

    diverged = "the gradients are not finite: the training has diverged"
    assert explanation(float("nan"), float("nan")).startswith(diverged)
    assert explanation(1.0, float("inf")).startswith(diverged)
    assert explanation(1.0, 9.0) is None  # the gradients differ for another reason
