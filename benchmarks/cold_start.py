"""Seconds from a cold start to the 20th training update, compared with fairseq's ``lstm``.

    python benchmarks/cold_start.py [DATA_BIN] [--archs lstm,cas_lstm_iwslt] [--dtype fp16]

Each model trains in a new process with an empty Triton cache, and then in a second process that
uses the cache filled by the first. The columns are the seconds until the model is built and, from
then on, until the first and the last update. This package's models use its optimizer and criterion.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import machine


def child(args) -> None:
    """Train ``--child`` and print the seconds that it took, as JSON."""
    import training  # imports fairseq, so only in the child
    import translation

    argv = translation.command(args.child, args.data, args.max_tokens, fast=True)
    task, trainer = training.build(argv, args.dtype)
    ends = [time.time()]
    for sample in training.batches(task, trainer, args.updates):
        trainer.train_step([sample])
        machine.synchronize()
        ends.append(time.time())
    found = [ends[0] - args.started, ends[1] - ends[0], ends[-1] - ends[0]]
    print(json.dumps(found))


def seconds(arch: str, data: str, cache: str, args) -> list[float]:
    """Run one process: seconds until the model is built, then to the first and the last update."""
    command = [sys.executable, __file__, data, "--child", arch, "--dtype", args.dtype]
    command += ["--updates", str(args.updates), "--max-tokens", str(args.max_tokens)]
    environment = {**os.environ, "TRITON_CACHE_DIR": cache}
    started = ["--started", str(time.time())]
    done = subprocess.run(
        [*command, *started], env=environment, text=True, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", help="data-bin of a translation recipe")
    parser.add_argument("--archs", default="lstm,cas_lstm_iwslt")
    parser.add_argument("--updates", type=machine.positive, default=20)
    parser.add_argument("--max-tokens", type=machine.positive, default=4000)
    parser.add_argument("--dtype", default="float32", choices=["float32", "fp16"])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    print(f"\n## From a cold start to update {args.updates}, {args.dtype}\n")
    print(f"{args.max_tokens} tokens a batch; seconds.\n")
    columns = ["model", "cache of kernels", "start to model built", "to update 1"]
    print(machine.table([*columns, f"to update {args.updates}"], []), end="", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        data = args.data
        if data is None:
            import synthetic

            data = synthetic.write(folder)
        for arch in args.archs.split(","):
            cache = tempfile.mkdtemp(dir=folder)
            for kind in ("empty", "filled"):
                found = [f"{value:.1f}" for value in seconds(arch, data, cache, args)]
                print(machine.row([arch, kind, *found]), end="", flush=True)


if __name__ == "__main__":
    main()
