"""PyTorch's fully sharded data parallelism (FSDP2) gives the same gradients, without a warning."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from fairseq_casrnn.layers import CASLSTM, SentenceStateLSTM

store = f"file://{sys.argv[1]}"
torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
warnings.simplefilter("error")
mesh = init_device_mesh("cpu", (1,))

def gradients(make, wrap, lengths):
    torch.manual_seed(0)
    layer = make()
    wrap(layer)
    output, _ = layer(torch.randn(5, 2, 8, requires_grad=True), lengths=lengths)
    output.square().sum().backward()
    return [getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for p in layer.parameters()]

for make in (lambda: CASLSTM(8, 8, 2), lambda: SentenceStateLSTM(8, 8, 3)):
    for lengths in (None, [5, 3]):
        plain = gradients(make, lambda layer: None, lengths)
        sharded = gradients(make, lambda layer: fully_shard(layer, mesh=mesh), lengths)
        assert all(torch.equal(a, b) for a, b in zip(plain, sharded, strict=True))
"""


@pytest.mark.full
def test_fully_shard(tmp_path):
    command = [sys.executable, "-c", SCRIPT, tmp_path / "store"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
