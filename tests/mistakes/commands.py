"""fairseq's command lines, and a corpus for them."""

import json
import math
import random
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch

import fairseq_casrnn

USER_DIR = str(Path(fairseq_casrnn.__file__).parent)
LETTERS = "abcdefgh"
TRAINING = "--arch cas_lstm_tiny --cpu --max-tokens 200 --optimizer adam --lr 0.001 --max-epoch 1"
TRAINING += " --num-workers 0"


@dataclass
class Done:
    """What a command line left behind."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one sentence that a command printed which failed as it should."""
        assert self.status > 0, (self.status, self.out[-2000:])
        assert "Traceback" not in self.out + self.err, self.err
        # Where several processes run, torch puts their number before it.
        (sentence,) = re.findall(r"^(?:\[rank\d\]: )?error: (.*)", self.err, re.MULTILINE)
        return sentence

    def answers(self, kind: str) -> list[str]:
        """The lines of a translation that start with ``kind``, such as S-0 or H-0."""
        return [line for line in self.out.splitlines() if line.startswith(f"{kind}-")]


class Commands:
    """fairseq's command lines, run in forks of one process; each in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0
        self.zygote = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, program: str, *args, **options) -> Done:
        (done,) = self.together([self.job(program, *args, **options)])
        return done

    def job(self, program: str, *args, stdin: bytes | None = None, **options) -> dict:
        """A job for ``together``; options: ``file_size``, ``interrupt_after`` (see zygote)."""
        self.count += 1
        cwd = self.folder / str(self.count)
        cwd.mkdir()
        argv = [f"fairseq-{program}", *map(str, args)]
        if program == "hydra-train":
            argv.append(f"common.user_dir={USER_DIR}")
        else:
            argv += ["--user-dir", USER_DIR]
        if stdin is not None:
            (cwd / "in").write_bytes(stdin)
            options["in"] = str(cwd / "in")
        files = {"out": str(cwd / "out"), "err": str(cwd / "err"), "cwd": str(cwd)}
        return {"argv": argv, **files, **options}

    def together(self, jobs: list[dict]) -> list[Done]:
        """Run ``jobs`` at the same time."""
        self.zygote.stdin.write(json.dumps(jobs) + "\n")
        self.zygote.stdin.flush()
        answer = self.zygote.stdout.readline()
        assert answer, "the zygote died"
        return [
            Done(status, Path(job["out"]).read_text(), Path(job["err"]).read_text())
            for job, status in zip(jobs, json.loads(answer), strict=True)
        ]

    def close(self) -> None:
        """End the process that runs the command lines."""
        self.zygote.stdin.close()
        self.zygote.wait()

    def train(self, data: Path, *args, **options) -> Done:
        """``fairseq-train`` with a new save dir, unless ``args`` name one."""
        save = self.folder / f"{self.count + 1}" / "save"
        arguments = ["--save-dir", save, *TRAINING.split(), *args]
        return self("train", data, *arguments, **options)


def write_corpus(folder: Path, letters: str = LETTERS) -> Path:
    """Text files ``folder/{train,valid,test}.{xx,yy}`` of words of one letter."""
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (("train", 40), ("valid", 6), ("test", 6)):
        lines = [" ".join(rng.choices(letters, k=rng.randint(2, 6))) for _ in range(size)]
        (folder / f"{split}.xx").write_text("\n".join(lines) + "\n")
        (folder / f"{split}.yy").write_text("\n".join(lines).upper() + "\n")
    return folder


def preprocess(fairseq: Commands, text: Path, *args, **options) -> Done:
    """``fairseq-preprocess`` of a corpus of ``write_corpus`` into ``text/bin``."""
    arguments = ["-s", "xx", "-t", "yy", "--destdir", text / "bin", *args]
    for split in ("train", "valid", "test"):
        arguments += [f"--{split}pref", text / split]
    return fairseq("preprocess", *arguments, **options)


def damage(checkpoint: Path, copy: Path) -> None:
    """Copy a checkpoint with two bytes of its largest weight changed."""
    with zipfile.ZipFile(checkpoint) as archive:
        weights = [entry for entry in archive.infolist() if "/data/" in entry.filename]
        largest = max(weights, key=lambda entry: entry.file_size)
        content = archive.read(largest)
    flipped = content[:8] + bytes(byte ^ 255 for byte in content[8:10]) + content[10:]
    whole = checkpoint.read_bytes()
    assert whole.count(content) == 1
    copy.write_bytes(whole.replace(content, flipped))


def spoil_weights(checkpoint: Path, copy: Path) -> None:
    """Copy a checkpoint with weights that are no numbers."""
    state = torch.load(checkpoint, weights_only=True)
    state["model"] = {name: weight * math.nan for name, weight in state["model"].items()}
    torch.save(state, copy)
