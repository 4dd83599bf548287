"""The examples of a user's corpus as their files have them: ``original/SPLIT.jsonl``.

Binarised data may have lower-case words, digits replaced by 0 and rare words replaced by ``<unk>``.
Evaluations show the original text.
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
    """The examples of a split, in the order of the binarised data; each empty without such a file.

    Raises:
        UserError: the file does not have ``count`` examples.
    """
    path = folder / FOLDER / f"{split}.jsonl"
    if not path.is_file():  # not prepared by casrnn prepare
        return [{} for _ in range(count)]
    try:
        found = [parse_json(line) for line in read_lines(path)]
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); prepare again with --force") from None
    if len(found) != count or not all(isinstance(example, dict) for example in found):
        raise UserError(
            f"{path} is damaged: it must have {count} JSON objects, one for each binarised "
            "sentence; prepare again with --force"
        )
    return found
