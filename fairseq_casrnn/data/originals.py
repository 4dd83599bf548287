"""The examples of a corpus of one's own as its files have them: ``original/SPLIT.jsonl``.

Binarised data holds words in lower case, numbers as 0 and rare words as ``<unk>``; an evaluation
shows the text as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_casrnn.data.text import read_lines, write_lines
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError

FOLDER = "original"


def write_originals(folder: Path, originals: Mapping[str, Sequence[dict]]) -> None:
    """Write a line of JSON for each example of each split into ``folder/original``."""
    for split, examples in originals.items():
        lines = (json.dumps(example, ensure_ascii=False) for example in examples)
        write_lines(folder / FOLDER / f"{split}.jsonl", lines)


def read_originals(folder: Path, split: str, count: int) -> list[dict]:
    """The examples of a split of the data folder, in the order of the binarised ones.

    Raises:
        UserError: there are none, or not ``count`` of them.
    """
    path = folder / FOLDER / f"{split}.jsonl"
    if not path.is_file():
        raise UserError(
            f"{path} does not exist; prepare the data with casrnn prepare, and choose --subset "
            "among its splits"
        )
    try:
        found = [parse_json(line) for line in read_lines(path)]
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); prepare again with --force") from None
    if len(found) != count or not all(isinstance(example, dict) for example in found):
        raise UserError(
            f"{path} is damaged: it must have {count} JSON objects, as many as the binarised data "
            "has sentences; prepare again with --force"
        )
    return found
