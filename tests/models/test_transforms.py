"""Whole models under torch.jit.trace and with fake tensors."""

import warnings

import pytest
import torch
from helpers import FAMILIES, assert_close
from torch._subclasses import FakeTensorMode

from . import common

pytestmark = pytest.mark.sampled(1)

LONGER = (6, 2, 4)


@pytest.mark.parametrize("case", FAMILIES, ids=str)
@pytest.mark.parametrize("variant", ["plain", "no-input-feed"])
def test_trace_of_a_translation_model(case, variant):
    model = common.random_model(case, variant).eval()
    source = common.source(lengths=(6, 6, 6))
    arguments = (source, source.ne(common.PAD).sum(1), common.target())

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, source, lengths, previous):
            return self.model(source, lengths, previous)[0]

    with warnings.catch_warnings(action="ignore"):
        traced = torch.jit.trace(Logits(), arguments, check_trace=False)
    source = common.source(seed=5, lengths=LONGER)
    other = (source, source.ne(common.PAD).sum(1), common.target(seed=6))
    assert_close([traced(*other)], [Logits()(*other)])


@pytest.mark.parametrize("case", FAMILIES, ids=str)
def test_fake_tensors_in_a_translation_model(case):
    real = common.random_model(case)
    expected, _ = common.run(real)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        model = mode.from_tensor
        source, previous = model(common.source()), model(common.target())
        logits, _ = real(source, source.ne(common.PAD).sum(1), previous)
    assert logits.shape == expected.shape
