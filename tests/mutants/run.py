"""``make mutants``: check that ``make test`` notices bugs; takes WORDS as arguments.

Each mutant of mutants.toml is applied to a copy of the tree, in which the tests that it names run
as in ``make test``. WORDS select the mutants whose file or description contains one of them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "fairseq_casrnn"
JOBS, SECONDS = 2, 900


@dataclass(frozen=True)
class Mutant:
    """A bug.

    Attributes:
        breaks: what is wrong.
        file: in the package.
        old, new: text that occurs once in the file, and what stands in its place.
        tests: arguments for pytest, of tests that are part of ``make test``.
    """

    breaks: str
    file: str
    old: str
    new: str
    tests: str

    def apply(self, root: Path) -> str:
        """Plant the bug in the tree ``root``, and return the file's new content."""
        text = (root / PACKAGE / self.file).read_text("utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times {self.old!r}, not once")
        return text.replace(self.old, self.new)


def read() -> list[Mutant]:
    """All mutants."""
    with open(Path(__file__).with_name("mutants.toml"), "rb") as file:
        return [Mutant(**entry) for entry in tomllib.load(file)["mutant"]]


def copy_tree(folder: Path) -> Path:
    """A copy of what the tests need, in ``folder``."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    compiled = [path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.so")]
    for name in [*filter(None, names.split("\0")), *compiled]:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def first_failure(root: Path, tests: str) -> str:
    """The first test that fails in the tree ``root``, or '' if none does.

    Raises:
        RuntimeError: the tests could not be run, or there are none.
    """
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *shlex.split(tests)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"(not done after {SECONDS} seconds)"
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or not found:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return found[1]


def try_one(mutant: Mutant) -> str:
    """The first test that notices a mutant, or ''."""
    with tempfile.TemporaryDirectory() as folder:
        root = copy_tree(Path(folder))
        (root / PACKAGE / mutant.file).write_text(mutant.apply(root), "utf-8")
        return first_failure(root, mutant.tests)


def main(words: list[str]) -> int:
    """Print the table of mutants; 1 if one of them survives."""
    chosen = [m for m in read() if not words or any(w in m.file + m.breaks for w in words)]
    survived = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for mutant, test in zip(chosen, pool.map(try_one, chosen), strict=True):
            survived += not test
            print(f"{mutant.file}: {mutant.breaks}\n    {test or 'SURVIVED'}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutants are noticed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
