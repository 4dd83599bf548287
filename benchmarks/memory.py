"""Peak memory of ``fairseq-train`` and of layers, compared with fairseq's and torch's LSTM.

    python benchmarks/memory.py [DATA_BIN] [--archs cas_lstm_iwslt,…]

Each model trains for a few updates in a process of its own. The peak resident set size counts, less
that of a process that only imports the same packages. fairseq's ``lstm`` trains without this
plugin, which makes all programs keep freed memory. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import machine
import synthetic
import torch
from recurrent_layers import CELLS, DEPTH, SETTINGS, train
from torch import nn
from translation import FAIRSEQS, OURS, PEER, PEER_SIZES, TRAINING, USER_DIR

from fairseq_casrnn import layers


def peak(*command: str) -> float:
    """Peak resident set size of a Python process in MB. Raises SystemExit if the process fails."""
    with open(os.devnull, "w") as nowhere:
        redirect = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        process = os.posix_spawn(
            sys.executable, [sys.executable, *command], os.environ, file_actions=redirect
        )
        _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"error: {' '.join(command)} failed")
    return usage.ru_maxrss / 1024


def layer(name: str) -> None:
    """Train two layers for a few steps; runs in a process of its own."""
    size, batch, steps, _ = SETTINGS["650"]
    model = (
        nn.LSTM(size, size, DEPTH) if name == "nn.LSTM" else layers.build(name, size, size, DEPTH)
    )
    x = torch.randn(steps, batch, size, requires_grad=True)
    for _ in range(3):
        train(model, x, torch.ones(steps, batch, size))


def layers_table(idle: float) -> str:
    """The table of each layer's peak memory above ``idle``, that of a process without a layer."""
    megabytes = {name: peak(__file__, "--layer", name) for name in ["nn.LSTM", *CELLS.split(",")]}
    theirs = megabytes["nn.LSTM"] - idle
    rows = [
        [name, f"{value - idle:.0f}", f"{(value - idle) / theirs:.2f}"]
        for name, value in megabytes.items()
    ]
    title = "\n## Peak memory of layers: training, H 650, B 20, T 35, 2 layers\n\n"
    return title + machine.table(["layer", "MB above an idle process", "ratio"], rows)


def contenders(archs: list[str]) -> dict[str, list[str]]:
    """Training options by the model's name in the table, with fairseq's criterion and with ours."""
    found = {PEER: [f"--arch={PEER}", *PEER_SIZES, *FAIRSEQS]}
    for arch in archs:
        ours = [f"--user-dir={USER_DIR}", f"--arch={arch}"]
        found[arch] = [*ours, *FAIRSEQS]
        found[f"{arch}, {', '.join(option[2:] for option in OURS)}"] = [*ours, *OURS]
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", help="data-bin of a translation recipe")
    parser.add_argument("--archs", default="stacked_lstm_iwslt,cas_lstm_iwslt")
    parser.add_argument("--updates", type=machine.positive, default=30)
    parser.add_argument("--max-tokens", type=machine.positive, default=4000)
    parser.add_argument("--layer", help="only train this layer; the script calls itself with it")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if args.layer:
        return layer(args.layer)
    alone = peak("-c", "import fairseq_cli.train")
    idle = peak("-c", "import fairseq_cli.train, fairseq_casrnn")
    rows, theirs = [], 0.0
    with tempfile.TemporaryDirectory() as run:
        data = args.data or synthetic.write(run)
        for name, options in contenders(args.archs.split(",")).items():
            plugin = name != PEER
            found = peak(
                *("-m", "fairseq_cli.train", data, *options, *TRAINING),
                *("--max-tokens", str(args.max_tokens), "--max-update", str(args.updates)),
                *("--no-save", "--save-dir", run, "--disable-validation", "--cpu"),
                *("--log-format", "none"),
            )
            above = found - (idle if plugin else alone)
            theirs = theirs or above
            rows.append([name, f"{found:.0f}", f"{above:.0f}", f"{above / theirs:.2f}"])
    print(f"\n## Peak memory of training, {args.max_tokens} tokens a batch\n")
    columns = ["model", "MB in all", f"above an idle process ({alone:.0f}; {idle:.0f})", "ratio"]
    print(machine.table(columns, rows))
    print(layers_table(idle))


if __name__ == "__main__":
    main()
