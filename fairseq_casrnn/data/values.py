"""Parsing numbers and JSON from untrusted files, within bounds."""

from __future__ import annotations

import json
import re

NATURAL = re.compile("[0-9]{1,9}")  # int() raises ValueError for more than 4,300 digits


def natural(text: str) -> int | None:
    """The number below 10⁹ in ``text``, which must consist of digits 0 to 9; otherwise None."""
    return int(text) if NATURAL.fullmatch(text) else None


def parse_json(text: str | bytes):
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, not UTF-8, nested too deeply, or has an integer beyond 64 bits
            or a string with half of a surrogate pair, which cannot be written to a file.
    """
    text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
    try:
        value = json.loads(text, parse_int=_integer)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a string has half of a surrogate pair") from None
    return value


def _integer(text: str) -> int:
    if len(text) > 20 or abs(value := int(text)) >= 2**63:
        raise ValueError(f"the integer {text[:9]}… is too large")
    return value
