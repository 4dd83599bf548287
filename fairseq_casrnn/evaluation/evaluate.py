"""Translate a test set with a trained run and score it: what the recipes' ``evaluate.sh`` calls.

``python -m fairseq_casrnn.evaluation.evaluate --data DIR --run DIR --results FILE``
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

import fairseq_casrnn
from fairseq_casrnn.data.command import Parser, run_main
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.average import average, find_checkpoints, save
from fairseq_casrnn.evaluation.bleu import score_generated

_SPEED = re.compile(r"Translated ([\d,]+) sentences .* in ([\d.]+)s")


def languages(data: Path) -> tuple[str, str]:
    """Source and target language of a prepared folder, from its test set's file names.

    Raises:
        UserError: ``data`` is not a prepared folder.
    """
    for path in sorted((data / "data-bin").glob("test.*-*.*.idx")):
        source, target = path.name.split(".")[1].split("-")
        return source, target
    raise UserError(f"{data} is not a prepared folder (no data-bin with a test set in it)")


def choose_checkpoint(run: Path, which: str) -> Path:
    """The checkpoint to evaluate: ``best`` validation loss, ``last``, or an average.

    ``last:N`` and ``best:N`` average N checkpoints into ``checkpoint_avg_…pt`` of the run's folder.
    """
    if which in ("best", "last"):
        path = run / f"checkpoint_{which}.pt"
        if not path.exists():
            raise UserError(f"{path} does not exist; train the model first")
        return path
    path = run / f"checkpoint_avg_{which.replace(':', '_')}.pt"
    save(average(find_checkpoints(run, which)), path)
    return path


def generate(
    data: Path, checkpoint: Path, output: Path, beam: int, extra: list[str]
) -> float | None:
    """Run ``fairseq-generate`` on the test set; its output is in ``output`` only if it succeeds.

    Returns:
        Sentences translated per second, as fairseq reports them.

    Raises:
        UserError: with the end of what fairseq printed, if it fails.
    """
    user_dir = Path(fairseq_casrnn.__file__).parent
    command = [sys.executable, "-m", "fairseq_cli.generate", str(data / "data-bin")]
    command += ["--user-dir", str(user_dir), "--path", str(checkpoint), "--beam", str(beam)]
    command += ["--gen-subset", "test", "--max-tokens", "4000"]
    if (data / "text" / "bpe.codes").exists():
        command += ["--post-process", "subword_nmt"]
    if not torch.cuda.is_available():
        command.append("--cpu")
    part = output.with_name(f"{output.name}.part{os.getpid()}")
    try:
        with open(part, "w", encoding="utf-8") as file:
            done = subprocess.run(
                command + extra, stdout=file, stderr=subprocess.PIPE, text=True, check=False
            )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise UserError(f"fairseq-generate failed: {last.removeprefix('error: ')}")
        os.replace(part, output)
    finally:
        part.unlink(missing_ok=True)
    speed = _SPEED.search(done.stderr + output.read_text(encoding="utf-8"))
    return float(speed[1].replace(",", "")) / float(speed[2]) if speed else None


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.evaluate",
        description="Translate the test set, print both BLEU scores, append a JSON result line.",
    )
    parser.add_argument("--data", required=True, type=Path, help="prepared folder")
    parser.add_argument("--run", required=True, type=Path, help="folder of checkpoints")
    parser.add_argument("--results", required=True, type=Path, help="JSON lines file to append to")
    parser.add_argument("--arch", required=True, help="name to record")
    parser.add_argument("--seed", required=True, type=int, help="seed to record")
    parser.add_argument("--checkpoint", default="best", help="best, last, best:N or last:N")
    parser.add_argument("--beam", type=int, default=10)
    args, extra = parser.parse_known_args(argv)
    return run_main(lambda: _evaluate(args, [option for option in extra if option != "--"]))


def _evaluate(args: argparse.Namespace, extra: list[str]) -> None:
    target = languages(args.data)[1]
    if args.beam < 1:
        raise UserError(f"--beam must be at least 1, not {args.beam}")
    checkpoint = choose_checkpoint(args.run, args.checkpoint)
    output = args.run / f"generated.{checkpoint.stem}.beam{args.beam}.txt"
    speed = generate(args.data, checkpoint, output, args.beam, extra)
    scores = score_generated(output, args.data / "text", target)
    result = {"arch": args.arch, "seed": args.seed, "checkpoint": args.checkpoint}
    result |= {"beam": args.beam, **scores}
    if speed is not None:
        result["sentences_per_second"] = round(speed, 1)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with open(args.results, "a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(f"{args.arch} seed {args.seed}: BLEU {scores['bleu']:.2f} (tokenised, {output.name})")
    if "sacrebleu" in scores:
        print(f"  sacreBLEU {scores['sacrebleu']:.2f} (detokenised, {scores['signature']})")


if __name__ == "__main__":
    sys.exit(main())
