"""What a change is. As :mod:`.table`, it imports nothing of this package."""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = ("0.12.3.1",)
"""The versions of fairseq (``fairseq-fixed``) for which the changes are made and tested."""

KINDS = {
    "fix": "fairseq fails, or its result is wrong",
    "resumption": "a training that was interrupted ends as one that was not",
    "safety": "nothing is lost, run or taken for good that should not be",
    "speed": "the same in less time",
    "message": "one sentence in place of a traceback",
    "feature": "what options and models of this package need",
}


@dataclass(frozen=True)
class Patch:
    """One change.

    Attributes:
        target: what is changed, by its dotted name.
        kind: one of :data:`KINDS`.
        piece: the function that does it, by its dotted name in this package.
        why: a sentence without its full stop.
        when: how the piece is called in the place of the function ``target``:
            ``before``, ``piece(*args, **kwargs)``, to look at the arguments;
            ``after``, ``piece(result, *args, **kwargs)``, which gives the result;
            ``around``, ``piece(original, *args, **kwargs)``, which calls ``original``.
            ``replace``: the piece itself stands there. ``call``: ``piece()`` makes the change.
            Several pieces of one function are called in the order of the table.
        where: '' for any process that registers this package with fairseq, ``programs`` for
            fairseq's command lines, or the name of one of them.
    """

    target: str
    kind: str
    piece: str
    why: str
    when: str = "around"
    where: str = ""

    def belongs_in(self, program: str) -> bool:
        """Whether it is made in a process that runs ``program`` of fairseq ('': none)."""
        return self.where in ("", program) or (self.where == "programs" and program != "")
