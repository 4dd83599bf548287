"""Speed of training and beam search of translation models, compared with fairseq's ``lstm``.

    python benchmarks/translation.py [DATA_BIN] [--threads 1] [--archs cas_lstm_iwslt,…]
    python benchmarks/translation.py --dtype fp16

Uses fairseq's trainer and generator. Without DATA_BIN, the data are random sentences with
Multi30k's lengths and vocabulary sizes. All models have 2+2 layers of size 256 and see the same
batches. They take turns, and the median of several rounds counts; ratios are to fairseq's ``lstm``
in the same run. All hypotheses have the same fixed length, so that untrained models do equal work.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import machine
import synthetic
import torch
import training
from fairseq import utils

from fairseq_casrnn import precision
from fairseq_casrnn.patches import allocation

USER_DIR = str(Path(__file__).parents[1] / "fairseq_casrnn")
PEER = "lstm"
PEER_SIZES = [
    f"--{side}-{what}={value}"
    for side in ("encoder", "decoder")
    for what, value in (("layers", 2), ("embed-dim", 256), ("hidden-size", 256))
] + ["--decoder-out-embed-dim=256"]
TRAINING = ["--lr=1e-3", "--clip-norm=1", "--dropout=0.3", "--label-smoothing=0.1", "--seed=1"]
ONE_GPU = "--distributed-world-size=1"
TRAINING += ["--num-workers=0", ONE_GPU]
FAIRSEQS = ["--optimizer=adam", "--criterion=label_smoothed_cross_entropy"]
OURS = ["--optimizer=torch_adam", "--criterion=fused_label_smoothed_cross_entropy"]


def command(arch: str, data: str, max_tokens: int, fast: bool = False) -> list[str]:
    """Arguments of ``fairseq-train`` for ``arch``; ``fast`` selects OURS, except for PEER."""
    argv = [data, f"--arch={arch}", f"--max-tokens={max_tokens}", *TRAINING]
    argv += PEER_SIZES if arch == PEER else []
    return argv + (OURS if fast and arch != PEER else FAIRSEQS)


def decode(task, trainer, samples, beam: int, length: int) -> float:
    """Sentences per second of beam search with hypotheses of exactly ``length`` tokens."""
    model = trainer.model.eval()
    settings = argparse.Namespace(beam=beam, max_len_a=0, max_len_b=length, min_len=length)
    generator = task.build_generator([model], settings)
    sentences = sum(len(sample["id"]) for sample in samples)
    machine.synchronize()
    start = time.perf_counter()
    for sample in samples:
        sample = utils.move_to_cuda(sample) if torch.cuda.is_available() else sample
        task.inference_step(generator, [model], sample)
    machine.synchronize()
    return sentences / (time.perf_counter() - start)


def compare(data: str, archs: list[str], args) -> dict[str, tuple[float, float]]:
    """Median training words and decoded sentences per second of each model."""
    built = {
        arch: training.build(command(arch, data, args.max_tokens, args.fast), args.dtype)
        for arch in archs
    }
    samples = training.batches(*built[PEER], args.updates)
    small = training.batches(*training.build(command(PEER, data, 800)), 2)
    speeds = {arch: ([], []) for arch in archs}
    for number in range(args.rounds + 1):
        for arch in archs:
            task, trainer = built[arch]
            words = training.train(trainer, samples)
            pair = words, decode(task, trainer, small, args.beam, args.length)
            if number > 0:  # the first round warms up
                for values, value in zip(speeds[arch], pair, strict=True):
                    values.append(value)
    return {arch: tuple(map(statistics.median, pair)) for arch, pair in speeds.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", help="data-bin of a translation recipe")
    parser.add_argument("--archs", default="stacked_lstm_iwslt,cas_lstm_iwslt,cas_lstm_iwslt_247")
    parser.add_argument("--threads", type=machine.positive, default=1)
    parser.add_argument("--rounds", type=machine.positive, default=5)
    parser.add_argument("--updates", type=machine.positive, default=6, help="updates a round")
    parser.add_argument("--max-tokens", type=machine.positive, default=4000)
    parser.add_argument("--beam", type=machine.positive, default=10)
    parser.add_argument(
        "--length", type=machine.positive, default=15, help="tokens of every hypothesis"
    )
    parser.add_argument("--precision", default="highest", choices=precision.TRAINING_CHOICES)
    training.add_dtype(parser)
    parser.add_argument(
        "--fast", action="store_true", help="our models with this package's optimizer and criterion"
    )
    args = parser.parse_args()
    allocation.keep_freed_memory()  # as fairseq-train does with this plugin, whatever the model
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    busy = machine.warn_if_busy(args.threads)
    archs = [PEER, *args.archs.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        speeds = compare(args.data or synthetic.write(folder), archs, args)
    settings = f"{args.threads} threads, {args.dtype}, {args.precision} precision"
    settings += ", our optimizer and criterion" * args.fast
    print(f"\n## Translation, {settings}\n\n{busy}", end="")
    print(f"{args.max_tokens} tokens a batch of training; beam {args.beam}.\n")
    rows = []
    for arch, (words, sentences) in speeds.items():
        ratios = [
            f"{ours / theirs:.2f}" for ours, theirs in zip(speeds[arch], speeds[PEER], strict=True)
        ]
        rows.append([arch, f"{words:.0f}", ratios[0], f"{sentences:.1f}", ratios[1]])
    columns = ["model", "training words/s", "ratio", "decoding sentences/s", "ratio"]
    print(machine.table(columns, rows))


if __name__ == "__main__":
    main()
