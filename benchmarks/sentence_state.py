"""Training speed of the sentence-state LSTM compared with torch's two-layer BiLSTM.

    python benchmarks/sentence_state.py [--lengths 40,80] [--dtype float32] [--precision high]

Both have the same hidden size; on a GPU torch uses cuDNN. All sentences of a batch have the same
length. Each engine's results and gradients are first compared with those of ``reference`` in
float64, and the program ends if an error is too large.
"""

from __future__ import annotations

import argparse
import copy
from functools import partial

import machine
import torch
from lengths import Padded, train
from torch import Tensor

from fairseq_casrnn import precision, recurrence
from fairseq_casrnn.layers import SentenceStateLSTM

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LIMITS = {"float32": 1e-5, "bfloat16": 0.03, "float16": 0.005}
ROUNDED = 0.01
"""The limit for float32 if products may round their factors."""


def error(layer: SentenceStateLSTM, x: Tensor, grad: Tensor) -> float:
    """The largest error among h and all gradients, each relative to the norm of the exact one."""
    exact = copy.deepcopy(layer).double()
    exact.engine = "reference"
    results = []
    for model, dtype in ((layer, x.dtype), (exact, torch.float64)):
        inputs = x.detach().to(dtype).requires_grad_()
        h, _ = model(inputs)
        grads = torch.autograd.grad(h, [inputs, *model.parameters()], grad.to(dtype))
        results.append([h, *grads])
    return max(
        ((ours - theirs).norm() / theirs.norm()).item()
        for ours, theirs in zip(*results, strict=True)
    )


def compare(args, length: int) -> str:
    """The table for sentences of ``length`` words, as Markdown.

    Raises:
        SystemExit: an engine's error is above the limit.
    """
    torch.manual_seed(1)
    size, dtype = args.hidden_size, DTYPES[args.dtype]
    to = {"device": args.device, "dtype": dtype}
    x = torch.randn(length, args.batch_size, size, **to, requires_grad=True)
    grad = torch.randn(length, args.batch_size, size, **to)
    peer = "nn.LSTM, two layers, bidirectional"
    bilstm = Padded(size, size, 2, bidirectional=True).to(**to)
    jobs, errors = {peer: partial(train, bilstm, x, None, grad.repeat(1, 1, 2))}, {peer: ""}
    layer = SentenceStateLSTM(size, size, args.steps).to(**to)
    limit = LIMITS[args.dtype]
    if args.dtype == "float32" and args.precision != "highest":
        limit = ROUNDED
    for engine in args.engines:
        model = copy.deepcopy(layer)
        model.engine = engine
        found = error(model, x, grad)
        if not found <= limit:
            raise SystemExit(f"engine {engine} is off by {found:.1e}, more than {limit:.1e}")
        name = f"sentence-state LSTM, {args.steps} steps ({engine})"
        jobs[name], errors[name] = partial(train, model, x, None, grad), f"{found:.1e}"
    seconds = machine.median_seconds(jobs, args.rounds)
    words = length * args.batch_size
    rows = [
        [name, f"{1e3 * s:.2f}", f"{words / s:,.0f}", f"{seconds[peer] / s:.2f}", errors[name]]
        for name, s in seconds.items()
    ]
    title = f"{args.batch_size} sentences of {length} words, H {size}.\n\n"
    return title + machine.table(["model", "ms", "words/s", "x nn.LSTM", "error"], rows)


def numbers(text: str) -> list[int]:
    """Comma-separated sentence lengths, for argparse."""
    return [machine.positive(number) for number in text.split(",")]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option, number in (
        *(("--threads", 1), ("--rounds", 20), ("--batch-size", 32), ("--hidden-size", 300)),
        ("--steps", 9),
    ):
        parser.add_argument(option, type=machine.positive, default=number)
    parser.add_argument("--lengths", type=numbers, default="40,80", help="comma-separated")
    parser.add_argument("--device", default=machine.device(), choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--precision", default="highest", choices=precision.TRAINING_CHOICES)
    parser.add_argument("--engines", help="comma-separated")
    args = parser.parse_args()
    if args.engines is None:
        args.engines = "triton,eager" if args.device == "cuda" else recurrence.default()
    try:
        args.engines = machine.names_of(recurrence.installed(args.device))(args.engines)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --engines: {error}")
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    print(f"\n## Sentence-state LSTM, {args.dtype}, {args.precision} precision\n")
    print(f"{machine.name()}, {args.threads} threads.\n")
    print(machine.warn_if_busy(args.threads), end="")
    for length in args.lengths:
        print(compare(args, length), flush=True)


if __name__ == "__main__":
    main()
