"""Check the recipes' tokenisation against a tokenised corpus.

``python -m fairseq_casrnn.data.roundtrip --lang de FILE …`` detokenises each line of a lower-case,
Moses-tokenised file, tokenises the result as the recipes do, and counts the lines that are
unchanged. It prints two numbers:

* ``as is``: from the lower-case text. Moses only splits off a full stop within a line if a capital
  follows, so lines of several sentences change: they have no capitals.
* ``capitals restored``: with a capital after every stand-alone full stop, as in the text that the
  corpus was made from.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main
from fairseq_casrnn.data.text import detokenize_lines, read_lines, tokenize_lines

#: The first letter after " . " and any tokens without letters ("&quot;", "-", "…").
SENTENCE_START = re.compile(r"(?<= \. )((?:&\w+; |[^\w ]+ ){0,99})(\w)")


def restore_capitals(line: str) -> str:
    """Capitalise the word after each stand-alone full stop of a tokenised line."""
    return SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), line)


def failures(lines: Sequence[str], lang: str, capitals: bool = False) -> list[tuple[str, str]]:
    """(line, result) of each line that detokenising and tokenising again changes."""
    text = [restore_capitals(line) for line in lines] if capitals else lines
    again = tokenize_lines(detokenize_lines(text, lang), lang)
    return [(old, new) for old, new in zip(lines, again, strict=True) if old != new]


def report(path: Path, lang: str, show: int) -> None:
    """Print both shares for a file, and up to ``show`` lines that change even with capitals."""
    lines = read_lines(path)
    for label, capitals in (("as is", False), ("capitals restored", True)):
        bad = failures(lines, lang, capitals)
        share = 100 * (1 - len(bad) / len(lines))
        print(f"{path}: {share:.2f} % of {len(lines)} lines are unchanged ({label})")
    for old, new in bad[:show]:
        print(f"  - {old}\n  + {new}")


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.data.roundtrip",
        description="Share of tokenised lines that are unchanged by detokenising and tokenising.",
    )
    parser.add_argument("--lang", required=True, help="language code, e.g. de")
    parser.add_argument("--show", type=int, default=0, help="number of changed lines to print (0)")
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args(argv)

    def check() -> None:
        for path in args.files:
            report(path, args.lang, args.show)

    return run_main(check)


if __name__ == "__main__":
    sys.exit(main())
