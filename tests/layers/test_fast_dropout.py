"""The dropout that draws 16 random bits per element."""

import pytest
import torch
from helpers import rand

from fairseq_casrnn.layers import dropout as dropout_module
from fairseq_casrnn.layers.dropout import MIN_ELEMENTS, dropout, dropout_mask, locked_dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.99])
def test_dropped_share_and_scale(p):
    x = torch.ones(400_003)
    torch.manual_seed(1)
    y = dropout(x, p)
    kept = y != 0
    # The share of dropped elements is within five standard deviations of p.
    assert abs(1 - kept.double().mean() - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / (1 - p)), rtol=2e-3, atol=0)
    assert abs(y.double().mean() - 1) < 5 * (p / (1 - p) / x.numel()) ** 0.5


def test_elements_are_independent():
    torch.manual_seed(2)
    kept = (dropout(torch.ones(400_000), 0.5) != 0).double() - 0.5
    for apart in (1, 2, 3, 4, 5, 8, 256):
        assert abs((kept[apart:] * kept[:-apart]).mean()) < 5 * 0.25 / 400_000**0.5


def test_masks_follow_the_seed():
    x, masks = torch.ones(MIN_ELEMENTS), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(dropout(x, 0.3))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert not torch.equal(dropout(x, 0.3), masks[2])  # the generator has advanced


@pytest.mark.parametrize("shape", [(64, 65), (3, 70, 40)])
def test_gradient_and_strides(shape):
    x = rand(*shape, dtype=torch.float32).transpose(0, -1).requires_grad_()
    torch.manual_seed(3)
    y = dropout(x, 0.4)
    assert y.stride() == x.stride()
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, x * grad)
    assert grad.unique().numel() == 2


@pytest.mark.parametrize(
    "x", [torch.ones(100), torch.ones(5000, dtype=torch.float64)], ids=["few", "double"]
)
def test_few_or_double_elements_use_torchs_dropout(x):
    torch.manual_seed(4)
    ours = dropout(x, 0.3)
    torch.manual_seed(4)
    assert torch.equal(ours, torch.nn.functional.dropout(x, 0.3))


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.7, False)])
def test_no_dropout(p, training):
    x = torch.ones(5000)
    assert torch.equal(dropout(x, p, training), x)


@pytest.mark.parametrize("p", [1.0, 1e-7])
def test_extreme_probabilities(p):
    torch.manual_seed(5)
    y = dropout(torch.ones(5000), p)
    torch.testing.assert_close(y, torch.full_like(y, float(p < 1)))


def test_mask():
    torch.manual_seed(6)
    mask = dropout_mask(torch.ones(1), (50, 200), 0.25)
    torch.manual_seed(6)
    assert torch.equal(mask, dropout(torch.ones(50, 200), 0.25))


@pytest.mark.parametrize("features", [30, 9000])
def test_locked_dropout(features):
    """Locked dropout has one scaled mask per sequence for all steps."""
    x = torch.randn(5, 2, features)
    ratio = locked_dropout(x, 0.5) / x
    assert ratio.sub(ratio[0]).abs().max() < 1e-5
    assert set(ratio[0].round(decimals=4).unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(ratio[0, 0], ratio[0, 1])
    assert locked_dropout(x, 0.5, training=False) is x


def test_mask_on_a_gpu(monkeypatch):
    """The mask is allocated from one expanded number, but its elements are drawn one by one."""
    monkeypatch.setattr(dropout_module, "on_host", lambda x: False)
    like = torch.zeros(1, dtype=torch.float64)
    mask = dropout_mask(like, (40, 50, 60), 0.2)
    assert mask.dtype == like.dtype
    assert mask.is_contiguous()
    assert mask.unique().tolist() == [0, 1.25]
    assert abs((mask != 0).double().mean() - 0.8) < 5 * (0.2 * 0.8 / mask.numel()) ** 0.5
    for dim in range(3):
        assert mask.unique(dim=dim).size(dim) == mask.size(dim)  # all slices differ
    mask[0] = 7  # must not affect later masks
    assert dropout_mask(like, (2, 2), 0.5).max() <= 2
