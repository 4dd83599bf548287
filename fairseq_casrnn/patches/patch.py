"""The definition of a patch. Like :mod:`.table`, it imports nothing else of the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

VERSIONS = ("0.12.3.1",)
"""Versions of fairseq (``fairseq-fixed``) for which the patches are written and tested."""

KINDS = {
    "fix": "without it, fairseq fails or gives a wrong result",
    "resumption": "an interrupted training ends like an uninterrupted one",
    "safety": "protects against data loss, running code from files, and bad checkpoints or data",
    "speed": "the same result in less time",
    "message": "one sentence instead of a traceback",
    "feature": "needed by this package's options and models",
}


@dataclass(frozen=True)
class Patch:
    """One patch.

    Attributes:
        target: dotted name of what is patched.
        kind: one of :data:`KINDS`.
        hook: dotted name, in this package, of the function that does it.
        why: what it does or why, as a sentence without a full stop.
        when: how the hook is called when ``target`` is called:
            ``before``, ``hook(*args, **kwargs)``, inspects the arguments;
            ``after``, ``hook(result, *args, **kwargs)``, returns the result;
            ``around``, ``hook(original, *args, **kwargs)``, calls ``original``.
            ``replace``: the hook replaces ``target``. ``call``: ``hook()`` is called once, when the
            patches are installed.
            Several hooks of one target run in the order of the table.
        where: '' for any process that registers this package with fairseq, ``programs`` for
            fairseq's command lines, or the name of one of them.
    """

    target: str
    kind: str
    hook: str
    why: str
    when: str = "around"
    where: str = ""

    @property
    def name(self) -> str:
        """The last two parts of the hook's name: its module and function."""
        return ".".join(self.hook.split(".")[-2:])

    def is_omitted(self, omitted: Set[str]) -> bool:
        """Whether its kind or its name is among ``omitted``."""
        return self.kind in omitted or self.name in omitted

    def belongs_in(self, program: str) -> bool:
        """Whether it applies to a process that runs fairseq's ``program`` ('': none)."""
        return self.where in ("", program) or (self.where == "programs" and program != "")


def parse(text: str) -> tuple[Patch, ...]:
    """The patches of a table: targets, each on a line, then two indented lines for each hook."""
    return tuple(_parse(text))


def _parse(text: str) -> Iterator[Patch]:
    targets: list[str] = []
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    complete = False  # whether a hook of the current targets has been read
    for line in lines:
        if line.startswith(" "):
            kind, when, hook, *where = line.split()
            why, complete = next(lines).strip(), True
            for target in targets:
                yield Patch(target, kind, hook, why, when, "".join(where[1:]))
        else:
            targets, complete = [line] if complete else [*targets, line], False


def columns(patches: Sequence[Patch], omitted: Set[str] = frozenset()) -> str:
    """The patches in plain columns: target, kind, where, name, why; ``omitted`` ones are marked."""
    rows = [(f"changed in fairseq {VERSIONS[-1]}", "kind", "where", "name", "why")]
    rows += [
        (
            patch.target,
            f"{patch.kind} (off)" if patch.is_omitted(omitted) else patch.kind,
            patch.where or "all",
            patch.name,
            patch.why,
        )
        for patch in patches
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]))
        for row in rows
    )
