"""``--optimizer torch_adam`` beside fairseq's ``adam``."""

import copy

import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from fairseq_casrnn.optim.torch_adam import TorchAdam, TorchAdamConfig

SETTINGS = {"adam_betas": "(0.8, 0.99)", "adam_eps": 1e-12, "weight_decay": 0.1}


def optimizers(model):
    """fairseq's and ours, each with a copy of ``model``."""
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


def test_same_updates_as_fairseqs():
    torch.manual_seed(0)
    start = torch.nn.Linear(3, 2).double()
    (theirs, adam), (ours, torch_adam) = optimizers(start)
    train(theirs, adam, 20)
    train(ours, torch_adam, 20)
    for a, b, first in zip(theirs.parameters(), ours.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
        assert (a - first).abs().min() > 1e-3


def test_continues_from_its_state():
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
