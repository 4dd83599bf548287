"""Speed of the layers of sentence encoders by sentence length, as a table and log-log curves.

    python benchmarks/sentence_encoders.py [--threads 2] [--steps 9] [--mixed] [--out DIR]

A step of the sentence-state LSTM computes all words at once, but takes about half as many
multiplications as a whole two-layer BiLSTM of equal size, which computes one word after another.
Compares it with torch's BiLSTM and this package's. With --mixed, lengths are uniform between 1 and
the one in the table, and torch computes the padding, too. Writes DIR/sentence_lengths.png or
DIR/sentence_lengths_mixed.png.
"""

from __future__ import annotations

import argparse
from functools import partial

import machine
import torch
from lengths import Padded, train
from scaling import draw
from torch import nn

from fairseq_casrnn import layers, precision
from fairseq_casrnn.patches import allocation

LENGTHS = (5, 10, 20, 40, 80)


def models(size: int, steps: int) -> dict[str, nn.Module]:
    """The layers to compare, by name."""
    both = {"num_layers": 2, "bidirectional": True}
    return {
        "2-layer BiLSTM (nn.LSTM)": Padded(size, size, **both),
        "2-layer BiLSTM (ours)": layers.build("stacked_lstm", size, size, 2, "interleaved"),
        f"sentence-state LSTM, {steps} steps": layers.SentenceStateLSTM(
            size, size, num_steps=steps
        ),
    }


def milliseconds(args, device: str) -> tuple[dict[str, list[float]], list[str]]:
    """Milliseconds of a training step by model and length; with --mixed, the share of padding."""
    curves: dict[str, list[float]] = {}
    padding: list[str] = []
    by_name = {name: m.to(device) for name, m in models(args.hidden_size, args.steps).items()}
    for length in LENGTHS:
        x = torch.randn(
            length, args.batch_size, args.hidden_size, device=device, requires_grad=True
        )
        lengths = None
        if args.mixed:
            lengths = torch.randint(1, length + 1, (args.batch_size,))
            lengths[0] = length
            padding.append(f"{1 - lengths.double().mean().item() / length:.0%}")
        jobs = {}
        for name, model in by_name.items():
            with torch.no_grad():
                grad = torch.ones_like(model(x, lengths=lengths)[0])
            jobs[name] = partial(train, model, x, lengths, grad)
        for name, seconds in machine.median_seconds(jobs, args.rounds).items():
            curves.setdefault(name, []).append(1e3 * seconds)
    return curves, padding


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=machine.positive, default=1)
    parser.add_argument("--rounds", type=machine.positive, default=5)
    parser.add_argument("--batch-size", type=machine.positive, default=32)
    parser.add_argument("--hidden-size", type=machine.positive, default=300)
    parser.add_argument(
        "--steps", type=machine.positive, default=9, help="of the sentence-state LSTM"
    )
    parser.add_argument("--precision", default="highest", choices=precision.TRAINING_CHOICES)
    parser.add_argument("--mixed", action="store_true", help="sentences of unequal lengths")
    parser.add_argument(
        "--out", type=machine.plots_folder, help="folder of the plot (default: this machine's)"
    )
    args = parser.parse_args()
    allocation.keep_freed_memory()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    device = machine.device()
    torch.manual_seed(1)
    options = f"{args.threads} threads, {args.precision} precision{', mixed' * args.mixed}"
    sizes = f"B {args.batch_size}, H {args.hidden_size}"
    print(f"\n## Sentence encoders, {options}: ms of a training step by sentence length; {sizes}\n")
    print(machine.warn_if_busy(args.threads), end="")
    curves, padding = milliseconds(args, device)
    rows = [[name, *(f"{ms:.1f}" for ms in values)] for name, values in curves.items()]
    if padding:
        rows.insert(0, ["padding", *padding])
    print(machine.table(["length", *map(str, LENGTHS)], rows))
    path = (args.out or machine.folder()) / f"sentence_lengths{'_mixed' * args.mixed}.png"
    draw({"sentence length": (LENGTHS, curves)}, path, f"{machine.name()}, {options}; {sizes}")


if __name__ == "__main__":
    main()
