"""Speed of the recurrent layers on sequences of unequal length, compared with ``nn.LSTM``.

    python benchmarks/lengths.py [--threads 1] [--cells cas_lstm,dg_lstm]

All have one direction and two layers; lengths are uniform between 1 and T, unsorted. nn.LSTM either
computes the padding, too, or gets a PackedSequence, whose sorting and packing is included. Prints
Markdown tables of a training step: milliseconds, and the ratio to the faster nn.LSTM.
"""

from __future__ import annotations

import argparse
from functools import partial

import machine
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairseq_casrnn import layers
from fairseq_casrnn.cells import FAMILIES

SETTINGS = {  # H, B, T
    "256": (256, 64, 30),
    "300": (300, 128, 40),
    "650": (650, 20, 35),
}
CELLS = "stacked_lstm,cas_lstm,highway_lstm,dg_lstm,second_order_lstm"


class Packed(nn.LSTM):
    """nn.LSTM on packed sequences, which skips padding."""

    def forward(self, x, lengths):
        """A tuple of the padded output ``(T, B, H)`` and the lengths."""
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return pad_packed_sequence(super().forward(packed)[0], total_length=len(x))


class Padded(nn.LSTM):
    """nn.LSTM on padded sequences, which computes padding like real steps."""

    def forward(self, x, lengths):
        """``output, (h_n, c_n)`` as of nn.LSTM; ``lengths`` are ignored."""
        return super().forward(x)


def train(model: nn.Module, x, lengths, grad) -> None:
    """One forward and backward, with gradients of the input and all parameters."""
    for tensor in (x, *model.parameters()):
        tensor.grad = None
    model(x, lengths=lengths)[0].backward(grad)


def compare(setting: str, cells: list[str], rounds: int) -> str:
    """The table of a setting, as Markdown."""
    size, batch, steps = SETTINGS[setting]
    torch.manual_seed(1)
    models = {"nn.LSTM, padded": Padded(size, size, 2), "nn.LSTM, packed": Packed(size, size, 2)}
    models |= {name: layers.build(name, size, size, 2) for name in cells}
    device = machine.device()
    for model in models.values():
        model.to(device)
    x = torch.randn(steps, batch, size, device=device, requires_grad=True)
    grad = torch.randn(steps, batch, size, device=device)
    lengths = torch.randint(1, steps + 1, (batch,))
    jobs = {name: partial(train, model, x, lengths, grad) for name, model in models.items()}
    seconds = machine.median_seconds(jobs, rounds)
    peer = min(seconds[name] for name in models if name.startswith("nn"))
    padding = 1 - lengths.sum().item() / (steps * batch)
    rows = [[name, f"{1e3 * s:.1f}", f"{s / peer:.2f}"] for name, s in seconds.items()]
    title = f"H {size}, B {batch}, T {steps}; {padding:.0%} of it padding.\n\n"
    return title + machine.table(["layer", "ms", "over nn.LSTM"], rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option, number in (("--threads", 1), ("--rounds", 9)):
        parser.add_argument(option, type=machine.positive, default=number)
    names = machine.names_of
    parser.add_argument("--cells", type=names(FAMILIES), default=CELLS, help="comma-separated")
    parser.add_argument("--settings", type=names(SETTINGS), default=",".join(SETTINGS))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"\n## Sequences of unequal length, {args.threads} threads\n")
    print(machine.warn_if_busy(args.threads), end="")
    for setting in args.settings:
        print(compare(setting, args.cells, args.rounds), flush=True)


if __name__ == "__main__":
    main()
