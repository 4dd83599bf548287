"""Compile the kernels that a training needs on this machine's GPU in advance.

Triton compiles a kernel when it is first launched and caches it on disk. This command runs the
training for one update, in each requested dtype, with small batches and with the largest that its
options allow, since kernels depend on both. These trainings run in parallel and save nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from fairseq_casrnn.console.programs import end_with_parent
from fairseq_casrnn.errors import UserError, one_sentence
from fairseq_casrnn.plugin import USER_DIR, add_user_dir, pass_on_plugin

DTYPES = {"float32": [], "float16": ["--fp16"], "bfloat16": ["--bf16"]}
PROGRAM = [sys.executable, "-m", "fairseq_cli.train"]
ONE_UPDATE = ["--max-update=1", "--no-save", "--disable-validation", "--no-progress-bar"]
FEW = ["--batch-size=8"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser; all others are those of fairseq-train."""
    parser.usage = "%(prog)s [-h] [--dtype NAMES] DATA --arch NAME [options of fairseq-train]"
    parser.set_defaults(takes_unknown=True)
    parser.add_argument(
        "--dtype",
        type=dtypes,
        default=[],
        help=f"comma-separated list of {', '.join(DTYPES)} (default: from the options)",
    )


def dtypes(text: str) -> list[str]:
    """Comma-separated names of dtypes, for argparse."""
    for name in text.split(","):
        if name not in DTYPES:
            raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(DTYPES)}")
    return text.split(",")


def commands(training: list[str], names: list[str], folder: str) -> list[list[str]]:
    """The command lines of all trainings; ``folder`` must be empty, so that none is resumed."""
    given = [part for part in training if part not in ("--fp16", "--bf16")] if names else training
    own = ["--user-dir", USER_DIR, "--save-dir", folder, *ONE_UPDATE]
    kinds = [DTYPES[name] for name in names] or [[]]
    return [PROGRAM + given + kind + few + own for kind in kinds for few in ([], FEW)]


def without_plugin(training: list[str]) -> list[str]:
    """``training`` without ``--user-dir``, which is passed on in the environment instead."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_user_dir(parser)
    found, rest = parser.parse_known_args(training)
    if found.user_dir is not None and Path(found.user_dir).resolve() != Path(USER_DIR).resolve():
        pass_on_plugin(found.user_dir)
    return rest


def run(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        UserError: there is no GPU, or a training failed.
    """
    import torch

    if not args.unknown:
        raise UserError("give DATA, --arch NAME and other options of fairseq-train")
    if not torch.cuda.is_available():
        raise UserError(
            "torch finds no GPU on this machine; warm up on the machine that will train"
        )
    training = without_plugin(args.unknown)
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number, command in enumerate(commands(training, args.dtype, folder)):
            log = open(Path(folder, f"{number}.log"), "w+", encoding="utf-8")  # noqa: SIM115
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=end_with_parent
            )
            started.append((process, log))
        failed = [log for process, log in started if process.wait()]
        if failed:
            failed[0].seek(0)
            lines = failed[0].read().strip().splitlines() or ["it printed nothing"]
            raise UserError(f"fairseq-train failed: {one_sentence(lines[-1])}")
        for _, log in started:
            log.close()
    print(f"kernels compiled for {torch.cuda.get_device_name()}")
