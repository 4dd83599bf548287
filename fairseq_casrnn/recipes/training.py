"""Training one system with one seed, in the folder of a run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.console.programs import Programs
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import make_folder
from fairseq_casrnn.plugin import USER_DIR, assignment
from fairseq_casrnn.runs import record
from fairseq_casrnn.runs.environment import command_line
from fairseq_casrnn.runs.identity import differences, identity, read_text
from fairseq_casrnn.runs.layout import FINISHED, IDENTITY, LAST, LOG, run_folder

STAYS_STOPPED = b"the training stays stopped"


@dataclass(frozen=True)
class Training:
    """A system to train with a seed.

    Args:
        name: the system.
        seed: its seed.
        out: folder of all runs.
        data: prepared folder.
        options: options of ``fairseq-train`` without seed and folders.
        recipe: name of the recipe, for ``run.json``.
        variables: names of the environment variables that the recipe reads.
    """

    name: str
    seed: str
    out: str
    data: str
    options: list[str]
    recipe: str = ""
    variables: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """``OUT/SYSTEM/seedN``."""
        return run_folder(Path(self.out), self.name, self.seed)

    def arguments(self) -> list[str]:
        """All options of ``fairseq-train``."""
        where = [f"{self.data}/data-bin", "--user-dir", USER_DIR, "--seed", self.seed]
        where += ["--save-dir", f"{self.out}/{self.name}/seed{self.seed}"]
        return [*where, "--no-progress-bar", "--log-format", "simple", *self.options]

    def command(self) -> str:
        """The training as a command of the shell."""
        return assignment() + shlex.join(["fairseq-train", *self.arguments()])

    def train(self, programs: Programs) -> None:
        """Train, or resume the training, unless it has finished.

        Raises:
            UserError: it was started with other options or data, or its folder cannot be made.
            SystemExit: the training failed.
        """
        if programs.dry_run:
            return print(self.command(), flush=True)
        title = f"{self.name} with seed {self.seed}"
        own, wanted = identity(Path(self.data, "data-bin"), self.options), " ".join(self.options)
        kept, finished = self.folder / IDENTITY, self.folder / FINISHED
        started = (self.folder / LAST).is_file() and kept.is_file()
        if started and (first := read_text(kept)) != own:
            raise UserError(refusal(self.folder, first, own))
        before = read_text(finished) if finished.is_file() else ""
        if before == wanted and finished.is_file():
            return print(f"{title} is finished: {self.folder}", flush=True)
        make_folder(self.folder, Path(self.out))
        # A longer training makes the run unfinished.
        finished.unlink(missing_ok=True)
        kept.write_text(f"{own}\n", "utf-8", "surrogateescape")
        command = command_line(self.variables)
        record.update(self.folder, system=self.name, recipe=self.recipe, command=command)
        print(f"training {title} in {self.folder}", flush=True)
        log = self.folder / LOG
        logged = log.stat().st_size if log.is_file() else 0
        status = programs.train(log, *self.arguments())
        if status:
            # It failed before training anything, so the run is as it was.
            if before and not self._trained():
                finished.write_text(f"{before}\n", "utf-8", "surrogateescape")
            raise SystemExit(status)
        if (self.folder / LAST).is_file() and not self._trained():
            print(
                f"{title} had nothing left to train: {reason_for_no_training(log, logged)}",
                flush=True,
            )
        finished.write_text(f"{wanted}\n", "utf-8", "surrogateescape")

    def _trained(self) -> bool:
        """Whether this training has written a checkpoint.

        A checkpoint with the same time as ``identity`` counts: file systems' clocks may be coarse.
        """
        last = self.folder / LAST
        started = (self.folder / IDENTITY).stat().st_mtime_ns
        return last.exists() and last.stat().st_mtime_ns >= started


def refusal(folder: Path, before: str, now: str) -> str:
    """The message for a run in ``folder`` that cannot be resumed: its identity differs."""
    data, options = differences(before, now)
    remedy = "give another --out, or delete that folder to train again"
    if data:
        named = f", and other options ({', '.join(options)})" if options else ""
        return f"{folder} was started with other data{named}; {remedy}"
    named = ", ".join(options) or "in another order"
    return (
        f"{folder} was started with other options ({named}); repeat the options given before, "
        f"{remedy}"
    )


def reason_for_no_training(log: Path, logged: int) -> str:
    """Why a training had nothing to do; its log starts after ``logged`` bytes."""
    with open(log, "rb") as file:
        file.seek(logged)
        if STAYS_STOPPED in file.read():
            return "it stopped early because of --patience; raise --patience to continue"
    return "its checkpoints have at least as many epochs"
