"""Speed of the fused cross entropy compared with torch's, forward and backward.

    python benchmarks/cross_entropy.py [--threads 2] [--precision medium] [--dtype bfloat16]

Both start from the output layer's features, weight and bias and compute the gradients of all three,
with label smoothing; torch uses ``F.linear`` and ``F.cross_entropy``. Runs on a GPU if there is
one, where it also measures the peak memory beyond the inputs. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from functools import partial

import machine
import torch
import torch.nn.functional as F

from fairseq_casrnn import precision
from fairseq_casrnn.patches import allocation
from fairseq_casrnn.recurrence.cross_entropy import LossSpec, can_fuse, cross_entropy

SIZES = [(450, 200, 10000), (700, 200, 10000), (3300, 256, 5208), (2240, 600, 33278)]
SMOOTHING, PAD = 0.1, 1


def ours(tensors, target) -> None:
    """This package's fused cross entropy, forward and backward."""
    loss, _ = cross_entropy(*tensors, LossSpec(target, SMOOTHING, PAD), engine(target.device.type))
    torch.autograd.grad(loss, tensors)


def torchs(tensors, target) -> None:
    """torch's cross entropy of a tensor of logits, forward and backward."""
    options = {"label_smoothing": SMOOTHING, "ignore_index": PAD, "reduction": "sum"}
    # fairseq computes the softmax in float32.
    loss = F.cross_entropy(F.linear(*tensors).float(), target, **options)
    torch.autograd.grad(loss, tensors)


def engine(device: str) -> str:
    """The engine that has a fused cross entropy on this type of device."""
    return "triton" if device == "cuda" else "cpp"


def megabytes(job) -> str:
    """Peak GPU memory of a job beyond its inputs, in MB."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    job()
    return f"{(torch.cuda.max_memory_allocated() - before) / 1e6:.0f}"


def row(size: tuple[int, int, int], rounds: int, device: str, dtype: torch.dtype) -> list[str]:
    """The row of one size: both times in milliseconds, their ratio, and our GFLOP/s."""
    tokens, features, words = size
    tensors = [torch.randn(shape) for shape in ((tokens, features), (words, features), (words,))]
    tensors = [(0.1 * tensor).to(device, dtype).requires_grad_() for tensor in tensors]
    target = torch.randint(4, words, (tokens,)).to(device)
    jobs = {job.__name__: partial(job, tensors, target) for job in (torchs, ours)}
    seconds = machine.median_seconds(jobs, rounds)
    speed = 3 * 2 * tokens * features * words / seconds["ours"]
    return [
        ", ".join(map(str, size)),
        *(f"{1e3 * seconds[name]:.1f}" for name in jobs),
        f"{seconds['ours'] / seconds['torchs']:.2f}",
        f"{speed / 1e9:.0f}",
        *(megabytes(job) for job in jobs.values() if device == "cuda"),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=machine.positive, default=1)
    parser.add_argument("--rounds", type=machine.positive, default=9)
    parser.add_argument("--precision", default="highest", choices=precision.TRAINING_CHOICES)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    args = parser.parse_args()
    device = machine.device()
    dtype = getattr(torch, args.dtype)
    if not can_fuse(torch.zeros(1, 1, device=device, dtype=dtype), engine(device)):
        raise SystemExit(
            f"error: engine {engine(device)} has no cross entropy in {args.dtype} on this device"
        )
    allocation.keep_freed_memory()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    torch.manual_seed(1)
    settings = f"{args.threads} threads, {args.dtype}, {args.precision} precision"
    print(f"\n## Cross entropy: {settings}\n")
    print(machine.warn_if_busy(args.threads), end="")
    columns = ["tokens, features, words", "torch, ms", "ours, ms", "ratio", "GFLOP/s"]
    columns += ["torch, MB", "ours, MB"] if device == "cuda" else []
    print(machine.table(columns, [row(size, args.rounds, device, dtype) for size in SIZES]))


if __name__ == "__main__":
    main()
