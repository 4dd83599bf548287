"""``--optimizer torch_adam`` compared with fairseq's ``adam``."""

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.optim.torch_adam import TorchAdam, TorchAdamConfig

SETTINGS = {"adam_betas": "(0.8, 0.99)", "adam_eps": 1e-12, "weight_decay": 0.1}


def optimizers(model):
    """Return fairseq's optimizer and this package's, each with a copy of ``model``."""
    made = []
    for kind, config in ((FairseqAdam, FairseqAdamConfig), (TorchAdam, TorchAdamConfig)):
        own = copy.deepcopy(model)
        cfg = OmegaConf.create({**vars(config()), **SETTINGS, "lr": [0.05], "tpu": False})
        made.append((own, kind(cfg, list(own.parameters()))))
    return made


def train(model, optimizer, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(4, 3, generator=generator, dtype=torch.double)
        optimizer.backward(model(x).pow(2).sum())
        optimizer.step()
        optimizer.zero_grad()


def test_updates_equal_fairseqs():
    torch.manual_seed(0)
    start = torch.nn.Linear(3, 2).double()
    (theirs, adam), (ours, torch_adam) = optimizers(start)
    train(theirs, adam, 20)
    train(ours, torch_adam, 20)
    for a, b, first in zip(theirs.parameters(), ours.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
        assert (a - first).abs().min() > 1e-3


def test_resuming_from_the_state():
    torch.manual_seed(0)
    start = torch.nn.Linear(3, 2).double()
    _, (whole, optimizer) = optimizers(start)
    train(whole, optimizer, 5)
    _, (resumed, other) = optimizers(whole)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(whole, optimizer, 5, seed=2)
    train(resumed, other, 5, seed=2)
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def in_half(cfg, flat: bool):
    """Return a small model in float16 and fairseq's optimizer around that of ``cfg``."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).half()
    options = {"fp16_init_scale": 128, "fp16_scale_window": 5, "fp16_scale_tolerance": 0.0}
    options |= {"threshold_loss_scale": None, "min_loss_scale": 1e-4, "bf16": False}
    common = SimpleNamespace(**options, fp16_no_flatten_grads=not flat)
    whole = SimpleNamespace(optimizer=cfg, common=common)
    return model, FP16Optimizer.build_optimizer(whole, list(model.parameters()))


@pytest.mark.parametrize("flat", [True, False])
def test_in_half_precision(flat, monkeypatch):
    """``FP16Optimizer`` keeps the float32 weights in one tensor or in several."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # None stands for the CPU
    trained = []
    for name, config in (("adam", FairseqAdamConfig), ("torch_adam", TorchAdamConfig)):
        values = {**vars(config()), **SETTINGS, "lr": [0.05], "_name": name}
        values |= {"tpu": False} if "tpu" in values else {}
        model, optimizer = in_half(OmegaConf.create(values), flat)
        first = model.weight.detach().clone()
        for step in range(5):
            optimizer.zero_grad()
            x = torch.full((2, 3), 0.5 + step).half()
            optimizer.backward(model(x).float().pow(2).sum())
            optimizer.multiply_grads(0.5)
            assert optimizer.clip_grad_norm(0.1) > 0.1
            optimizer.step()
        trained.append(model)
        assert (model.weight - first).abs().min() > 0.01
    for a, b in zip(*(model.parameters() for model in trained), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)


def test_memory_efficient_half_precision_is_refused():
    (_, (_, optimizer)) = optimizers(torch.nn.Linear(3, 2))
    with pytest.raises(UserError, match="torch_adam needs weights in float32; give --fp16"):
        MemoryEfficientFP16Optimizer(SimpleNamespace(optimizer=None), [], optimizer)
