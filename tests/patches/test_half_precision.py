"""fairseq's ``FP16Optimizer`` that copies many tensors at once, compared with fairseq's own."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FP16Optimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin
from omegaconf import OmegaConf

from fairseq_casrnn.optim.torch_adam import TorchAdamConfig

METHODS = ("_sync_fp16_grads_to_fp32", "_sync_fp32_params_to_fp16", "zero_grad")


def build(flat: bool, dtype, frozen: bool):
    """Return a model of two layers in half precision, and its optimizer."""
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)]).to(dtype)
    model[0].bias.requires_grad_(not frozen)
    options = {"fp16_init_scale": 128, "fp16_scale_window": 5, "fp16_scale_tolerance": 0.0}
    options |= {"threshold_loss_scale": None, "min_loss_scale": 1e-4}
    options |= {"fp16_no_flatten_grads": not flat, "bf16": dtype == torch.bfloat16}
    adam = OmegaConf.create({**vars(TorchAdamConfig()), "lr": [0.05], "_name": "torch_adam"})
    cfg = SimpleNamespace(optimizer=adam, common=SimpleNamespace(**options))
    return model, FP16Optimizer.build_optimizer(cfg, list(model.parameters()))


def train(flat: bool, dtype, frozen: bool = False) -> list[torch.Tensor]:
    """Return weights, and float32 weights and gradients, after each of four updates."""
    model, optimizer = build(flat, dtype, frozen)
    seen = []
    for step in range(4):
        optimizer.zero_grad()
        x = torch.full((2, 3), 0.5 + step).to(dtype)
        y = model[1](model[0](x)) if step else model[0](x)
        optimizer.backward(y.float().pow(2).sum())
        optimizer.clip_grad_norm(0.1)
        optimizer.step()
        full = optimizer.fp32_params
        full = list(full.values()) if flat else full
        seen += [p.detach().clone() for p in (*model.parameters(), *full)]
        seen += [p.grad.clone() for p in full]
    optimizer.zero_grad()
    assert not any(p.grad.any() for p in full)
    assert all(p.grad is None for p in model.parameters())
    return seen


@pytest.mark.parametrize(
    ("flat", "dtype", "frozen"),
    [
        (True, torch.float16, False),
        (False, torch.float16, False),
        (False, torch.bfloat16, False),
        (False, torch.float16, True),
    ],
    ids=["one-tensor", "float16", "bfloat16", "frozen"],
)
def test_equals_fairseq(flat, dtype, frozen, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # None stands for the CPU
    ours, calls, copy = None, [], torch._foreach_copy_
    with monkeypatch.context() as patch:
        patch.setattr(torch, "_foreach_copy_", lambda to, of: calls.append(len(to)) or copy(to, of))
        ours = train(flat, dtype, frozen)
    # Copies of four parameters in each direction; fairseq itself copies frozen ones.
    assert calls == ([] if frozen else [4] * 7)
    for name in METHODS:
        monkeypatch.setattr(
            _FP16OptimizerMixin, name, getattr(_FP16OptimizerMixin, name).__wrapped__
        )
    theirs = train(flat, dtype, frozen)
    assert len(ours) == len(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], ours[-len(ours) // 4])
