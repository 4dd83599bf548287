"""``casrnn rerank all``: from checkpoints to reranked translations; a second call resumes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fairseq_casrnn.console.programs import Programs, end_with_parent, python_command
from fairseq_casrnn.data.checksum import checksum, contents
from fairseq_casrnn.data.prepared import prepared_folder, prepared_languages
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.evaluation.evaluate_translation import MODEL_LIMITS
from fairseq_casrnn.files import make_folder, replacing
from fairseq_casrnn.inference.loading import checkpoint_file
from fairseq_casrnn.plugin import USER_DIR
from fairseq_casrnn.reranking.prepare import units

KINDS = ("forward", "right-to-left", "backwards", "lm")
CLI = "fairseq_casrnn.cli"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Rerank a translation model's n-best lists with the scores of further models. A second "
        "call with the same --out reuses the lists and scores that exist."
    )
    path: dict[str, Any] = {"type": Path, "required": True}
    parser.add_argument(
        "--baseline",
        metavar="CHECKPOINT",
        **path,
        help="model whose n-best lists are reranked, or the folder of its run",
    )
    for kind, what in zip(
        KINDS,
        (
            "translation models that score the lists",
            "translation models trained on PREPARED/right_to_left",
            "translation models trained on PREPARED/backwards",
            "language models trained on PREPARED/lm",
        ),
        strict=True,
    ):
        several: dict[str, Any] = {"action": "extend", "nargs": "+", "default": [], "type": Path}
        parser.add_argument(f"--{kind}", metavar="CHECKPOINT", **several, help=what)
    parser.add_argument(
        "--data",
        metavar="PATH",
        required=True,
        type=prepared_folder,
        help="the prepared translation corpus",
    )
    parser.add_argument("--prepared", **path, help="output folder of casrnn rerank prepare")
    parser.add_argument(
        "--out", **path, help="output folder for lists, scores, weights and translations"
    )
    nbest = "hypotheses per sentence, and beam size (default: %(default)s)"
    parser.add_argument("--nbest", type=int, default=20, help=nbest)
    parser.add_argument(
        "--runs", type=int, default=10, help="number of tuning runs (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        UserError: a missing file, a number out of range, or ``--out`` with other lists.
        SystemExit: a program failed.
    """
    target = prepared_languages(args.data)[1]
    args.baseline = checkpoint_file(args.baseline)
    for kind in KINDS:
        checkpoints(args, kind)[:] = map(checkpoint_file, checkpoints(args, kind))
    check_at_least(1, nbest=args.nbest, runs=args.runs)
    check_settings(args)
    join = ["--join-subwords"] if units(args.data) == "bpe" else []
    out, text, programs = args.out, args.data / "text", Programs()
    for split in ("valid", "test"):
        generate(args, split)
    scores = score(args, "valid", programs)
    tune = ["--nbest", f"{out}/valid.nbest", "--scores", *scores, *join]
    tune += ["--reference", f"{text}/valid.tok.{target}", "--runs", str(args.runs)]
    programs.call(CLI, "rerank", "tune", *tune, "--output", f"{out}/weights.json")
    scores = score(args, "test", programs)
    apply = ["--nbest", f"{out}/test.nbest", "--scores", *scores]
    apply += ["--reference", f"{text}/test.tok.{target}", "--weights", f"{out}/weights.json"]
    apply += ["--output", f"{out}/test.reranked.{target}", "--json", f"{out}/result.json"]
    programs.call(CLI, "rerank", "apply", *apply)


def checkpoints(args: argparse.Namespace, kind: str) -> list[Path]:
    """The checkpoints of a kind."""
    return getattr(args, kind.replace("-", "_"))


def check_settings(args: argparse.Namespace) -> None:
    """Create ``--out``. Raises UserError if it has the lists of another model or other data."""
    make_folder(args.out, args.out)
    binarised = args.data / "data-bin"
    files = [
        path for name in ("dict", "valid", "test") for path in sorted(binarised.glob(f"{name}.*"))
    ]
    model = f"{os.path.realpath(args.baseline)} {checksum(contents([args.baseline]))}"
    settings = f"{os.path.realpath(args.data)}\n{model} {args.nbest} {checksum(contents(files))}\n"
    path = args.out / "setting"
    if path.is_file() and path.read_text("utf-8", "surrogateescape") != settings:
        raise UserError(
            f"{args.out} has lists of another --baseline, --data or --nbest, or the data has been "
            "prepared again since; give another --out"
        )
    path.write_text(settings, "utf-8", "surrogateescape")


def generate(args: argparse.Namespace, split: str) -> None:
    """Write the n-best list of a split, unless it exists, and a log.

    Raises:
        UserError: ``fairseq-generate`` failed.
    """
    path = args.out / f"{split}.nbest"
    if path.is_file():
        return
    print(f"translating {split} with beam {args.nbest}", flush=True)
    command = python_command("fairseq_cli.generate", f"{args.data}/data-bin")
    command += ["--user-dir", USER_DIR, "--path", str(args.baseline), "--gen-subset", split]
    command += ["--beam", str(args.nbest), "--nbest", str(args.nbest), "--max-tokens", "2000"]
    command += [*MODEL_LIMITS, "--no-progress-bar"]
    log = path.with_name(f"{path.name}.log")
    with replacing(path) as draft:
        with open(draft, "wb") as output, open(log, "wb") as errors:
            done = subprocess.run(command, stdout=output, stderr=errors, preexec_fn=end_with_parent)
        if done.returncode:
            last = log.read_text("utf-8", "replace").splitlines()[-5:]
            print("\n".join(last), file=sys.stderr)
            raise UserError(f"fairseq-generate failed on {split}; see {log}")


def score(args: argparse.Namespace, split: str, programs: Programs) -> list[str]:
    """Score the list of a split with each model. Returns the files of scores."""
    scored: list[str] = []
    for kind in KINDS:
        data = args.data if kind == "forward" else args.prepared / kind.replace("-", "_")
        flags = [] if kind == "forward" else [f"--{kind}"]
        for path in checkpoints(args, kind):
            print(" ".join([f"{split}: {path}", *flags]), flush=True)
            scored.append(f"{args.out}/{split}.{len(scored) + 1}-{kind}.tsv")
            options = ["--data", f"{data}/data-bin", "--path", str(path), *flags]
            options += ["--output", scored[-1]]
            programs.call(CLI, "rerank", "score", f"{args.out}/{split}.nbest", *options)
    return scored
