"""Speed of the vocabulary's cross entropy, from features to gradients, against torch's.

    python benchmarks/cross_entropy.py [--threads 2] [--precision medium]

Both go from features, weight and bias of the output layer to the gradients of all, labels smoothed;
torch's by its linear map, its cross entropy and their backward. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from functools import partial

import machine
import torch
import torch.nn.functional as F

from fairseq_casrnn import allocation, precision
from fairseq_casrnn.recurrence import cpp
from fairseq_casrnn.recurrence.cross_entropy import Wanted, cross_entropy

SIZES = [(450, 200, 10000), (700, 200, 10000), (3300, 256, 5208), (2240, 600, 33278)]
SMOOTHING, PAD = 0.1, 1


def ours(tensors, target) -> None:
    """The compiled cross entropy."""
    loss, _ = cross_entropy(*tensors, Wanted(target, SMOOTHING, PAD))
    torch.autograd.grad(loss, tensors)


def torchs(tensors, target) -> None:
    """torch's, over a table of logits."""
    options = {"label_smoothing": SMOOTHING, "ignore_index": PAD, "reduction": "sum"}
    loss = F.cross_entropy(F.linear(*tensors), target, **options)
    torch.autograd.grad(loss, tensors)


def row(size: tuple[int, int, int], rounds: int) -> list[str]:
    """Of one size: milliseconds of both, their ratio, and the speed of ours' arithmetic."""
    tokens, features, words = size
    tensors = [torch.randn(shape) for shape in ((tokens, features), (words, features), (words,))]
    tensors = [(0.1 * tensor).requires_grad_() for tensor in tensors]
    target = torch.randint(4, words, (tokens,))
    jobs = {job.__name__: partial(job, tensors, target) for job in (torchs, ours)}
    seconds = machine.median_seconds(jobs, rounds)
    speed = 3 * 2 * tokens * features * words / seconds["ours"]
    return [
        ", ".join(map(str, size)),
        *(f"{1e3 * seconds[name]:.1f}" for name in jobs),
        f"{seconds['ours'] / seconds['torchs']:.2f}",
        f"{speed / 1e9:.0f}",
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=machine.positive, default=1)
    parser.add_argument("--rounds", type=machine.positive, default=9)
    parser.add_argument("--precision", default="highest", choices=precision.CHOICES)
    args = parser.parse_args()
    if cpp.extension()[0] is None:
        raise SystemExit("error: the compiled extension is not installed")
    allocation.keep_freed_memory()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    torch.manual_seed(1)
    print(f"\n## Cross entropy: {args.threads} threads, {args.precision} precision\n")
    print(machine.warn_if_busy(args.threads), end="")
    columns = ["tokens, features, words", "torch, ms", "ours, ms", "ratio", "GFLOP/s"]
    print(machine.table(columns, [row(size, args.rounds) for size in SIZES]))


if __name__ == "__main__":
    main()
