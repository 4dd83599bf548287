"""Run fairseq's command lines, and write a corpus for them."""

import math
import random
import re
import resource
import signal
import subprocess
import sys
import time
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
    """The result of a command line."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The only sentence that a failed command printed."""
        assert self.status > 0, (self.status, self.out[-2000:])
        assert "Traceback" not in self.out + self.err, self.err
        # With several processes, torch prints their number before it.
        (sentence,) = re.findall(r"^(?:\[rank\d\]: )?error: (.*)", self.err, re.MULTILINE)
        return sentence

    def answers(self, kind: str) -> list[str]:
        """The lines of a translation that start with ``kind``, such as S-0 or H-0."""
        return [line for line in self.out.splitlines() if line.startswith(f"{kind}-")]


@dataclass
class Started:
    """A running command line; ``folder`` has its output."""

    process: subprocess.Popen
    folder: Path

    def interrupt_after(self, text: str, number: int = signal.SIGINT) -> None:
        """Send a signal, by default that of Ctrl-C, as soon as ``text`` has been printed."""
        while text not in (self.folder / "out").read_text():
            assert self.process.poll() is None, (self.folder / "err").read_text()
            time.sleep(0.01)
        self.process.send_signal(number)

    def finish(self) -> Done:
        """Wait until the command ends."""
        status = self.process.wait()
        return Done(status, (self.folder / "out").read_text(), (self.folder / "err").read_text())


class Commands:
    """Runs fairseq's command lines with ``python``, each in a new folder."""

    def __init__(self, folder: Path, python: str):
        self.folder, self.python, self.count = folder, python, 0

    def __call__(self, program: str, *args, **options) -> Done:
        return self.start(program, *args, **options).finish()

    def start(
        self, program: str, *args, stdin: bytes = b"", file_size: int | None = None
    ) -> Started:
        """Start ``fairseq-PROGRAM`` with an input and a limit on the size of files."""
        self.count += 1
        cwd = self.folder / str(self.count)
        cwd.mkdir()
        script = Path(sys.executable).with_name(f"fairseq-{program}")
        command = list(map(str, [self.python, script, *args]))
        if program == "hydra-train":
            command.append(f"common.user_dir={USER_DIR}")
        else:
            command += ["--user-dir", USER_DIR]
        (cwd / "in").write_bytes(stdin)

        def limit() -> None:
            if file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

        with (
            open(cwd / "in") as given,
            open(cwd / "out", "w") as out,
            open(cwd / "err", "w") as err,
        ):
            process = subprocess.Popen(
                command, cwd=cwd, stdin=given, stdout=out, stderr=err, preexec_fn=limit
            )
        return Started(process, cwd)

    def train(self, data: Path, *args, **options) -> Done:
        """Run ``fairseq-train`` with a new save dir, unless ``args`` name one."""
        return self.start_training(data, *args, **options).finish()

    def start_training(self, data: Path, *args, **options) -> Started:
        """Start a training like ``train``, without waiting for its end."""
        save = self.folder / f"{self.count + 1}" / "save"
        arguments = ["--save-dir", save, *TRAINING.split(), *args]
        return self.start("train", data, *arguments, **options)


def write_corpus(folder: Path, letters: str = LETTERS) -> Path:
    """Write text files ``folder/{train,valid,test}.{xx,yy}``, whose words are single letters."""
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (("train", 40), ("valid", 6), ("test", 6)):
        lines = [" ".join(rng.choices(letters, k=rng.randint(2, 6))) for _ in range(size)]
        (folder / f"{split}.xx").write_text("\n".join(lines) + "\n")
        (folder / f"{split}.yy").write_text("\n".join(lines).upper() + "\n")
    return folder


def preprocess(fairseq: Commands, text: Path, *args, **options) -> Done:
    """Run ``fairseq-preprocess`` on a corpus of ``write_corpus``; the result is in ``text/bin``."""
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


def spoil_weights(checkpoint: Path, copy: Path, factor: float = math.nan) -> None:
    """Copy a checkpoint whose weights are NaN, or multiplied by ``factor``."""
    state = torch.load(checkpoint, weights_only=True)
    state["model"] = {name: weight * factor for name, weight in state["model"].items()}
    torch.save(state, copy)
