"""Does our tokenisation agree with a corpus that is tokenised already?

``python -m fairseq_casrnn.data.roundtrip --lang de FILE …`` detokenises each line of a lower-case,
Moses-tokenised file (Moses' detokeniser), tokenises the result as the recipes do, and counts the
lines that come back as they were. Two numbers are given:

* ``as is``: from the lower-case text. Moses splits a full stop from a word inside a line only if
  a capital follows, so a line of several sentences cannot come back: its capitals are gone.
* ``capitals restored``: with the first letter after every stand-alone full stop put back to a
  capital, as it was in the text the corpus was made from.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.data.command import Parser, run_main
from fairseq_casrnn.data.text import detokenize_lines, read_lines, tokenize_lines

#: The first letter after " . " and any tokens without letters ("&quot;", "-", "…").
SENTENCE_START = re.compile(r"(?<= \. )((?:&\w+; |[^\w ]+ ){0,99})(\w)")


def restore_capitals(line: str) -> str:
    """Capitalise the word after each stand-alone full stop of a tokenised line."""
    return SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), line)


def failures(lines: Sequence[str], lang: str, capitals: bool = False) -> list[tuple[str, str]]:
    """(line, what came back) of each line that detokenising and tokenising again changes."""
    text = [restore_capitals(line) for line in lines] if capitals else lines
    again = tokenize_lines(detokenize_lines(text, lang), lang)
    return [(old, new) for old, new in zip(lines, again, strict=True) if old != new]


def report(path: Path, lang: str, show: int) -> None:
    """Print both shares for a file, and up to ``show`` lines that capitals do not explain."""
    lines = read_lines(path)
    for label, capitals in (("as is", False), ("capitals restored", True)):
        bad = failures(lines, lang, capitals)
        share = 100 * (1 - len(bad) / len(lines))
        print(f"{path}: {share:.2f} % of {len(lines)} lines come back ({label})")
    for old, new in bad[:show]:
        print(f"  - {old}\n  + {new}")


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.data.roundtrip",
        description="Share of tokenised lines that detokenising and tokenising again gives back.",
    )
    parser.add_argument("--lang", required=True, help="language code, e.g. de")
    parser.add_argument("--show", type=int, default=0, help="unexplained lines to print (0)")
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args(argv)

    def check() -> None:
        for path in args.files:
            report(path, args.lang, args.show)

    return run_main(check)


if __name__ == "__main__":
    sys.exit(main())
