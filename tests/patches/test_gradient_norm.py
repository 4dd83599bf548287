"""The norm of the gradients, which replaces apex's function."""

import pytest
import torch
from fairseq import utils

from fairseq_casrnn.patches.gradient_norm import l2_norm


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    made = []
    for shape in ((3, 4), (5,), (), (2, 2, 2)):
        made.append(torch.nn.Parameter(torch.zeros(shape, dtype=dtype)))
        made[-1].grad = torch.randn(shape, generator=generator).to(dtype)
    return [*made, torch.nn.Parameter(torch.zeros(2))]  # the last has no gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_norm(dtype):
    grads = [p.grad for p in parameters(dtype) if p.grad is not None]
    exact = torch.cat([g.double().flatten() for g in grads]).norm()
    norm, _ = l2_norm(2048, None, [grads], False)
    assert norm.dtype == torch.float32
    torch.testing.assert_close(norm.double(), exact, rtol=1e-6, atol=0)
    # Squares may exceed float16's range.
    norm, _ = l2_norm(2048, None, [[torch.full((9,), 1000.0, dtype=dtype)]], False)
    torch.testing.assert_close(norm, torch.tensor(3000.0))


def test_clipping_on_the_cpu_equals_fairseqs_bit_for_bit(monkeypatch):
    ours, theirs = parameters(), parameters()
    assert utils.multi_tensor_l2norm_available
    norm = utils.clip_grad_norm_(ours, 0.5)
    monkeypatch.setattr(utils, "multi_tensor_l2norm_available", False)
    assert torch.equal(norm, utils.clip_grad_norm_(theirs, 0.5))
    assert norm > 0.5
    for a, b in zip(ours[:-1], theirs, strict=False):
        assert torch.equal(a.grad, b.grad)


def test_fairseq_uses_it_on_a_gpu(monkeypatch):
    """Tensors on the CPU imitate tensors on a GPU."""
    grads, calls = [p.grad for p in parameters() if p.grad is not None], []

    def spy(*args):
        calls.append(args)
        return l2_norm(*args)

    monkeypatch.setattr(utils, "multi_tensor_l2norm", spy)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.device("cpu"))
    expected = utils.multi_tensor_total_norm(grads)

    class OnGPU(torch.Tensor):
        device = torch.device("cuda:0")

    monkeypatch.setattr(torch, "zeros", lambda *args, **options: None)
    found = utils.multi_tensor_total_norm([g.as_subclass(OnGPU) for g in grads])
    assert len(calls) == 1
    torch.testing.assert_close(found.as_subclass(torch.Tensor), expected)
