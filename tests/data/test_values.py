"""Parsing of numbers and JSON in files."""

import json

import pytest

from fairseq_casrnn.data.prepared import read_json
from fairseq_casrnn.data.values import natural, parse_json
from fairseq_casrnn.errors import UserError


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1.0", "²", "١", "1_0", "9" * 10, "9" * 5000]
)
def test_invalid_numbers(text):
    assert natural(text) is None


def test_numbers():
    assert [natural(text) for text in ("0", "007", "999999999")] == [0, 7, 999999999]


DAMAGED = [
    *("[" * 10**5, "{", "\\", '"\\ud800"', '"\\uDFFF"'),
    *(str(10**400), "1" * 5000, "9223372036854775808"),
]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_invalid_json(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_json():
    value = {"a": [1, 1.5, -(2**63) + 1, None, True, "ä 😀"]}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert parse_json(text) == parse_json(b"\xef\xbb\xbf" + text.encode()) == value


@pytest.mark.parametrize(
    "content", [b"[1]", b"3", b'"text"', b"\xff", *(t.encode() for t in DAMAGED)]
)
def test_damaged_file(tmp_path, content):
    (tmp_path / "options.json").write_bytes(content)
    with pytest.raises(
        UserError, match=r"options\.json is damaged \(.*\); prepare again with --force"
    ):
        read_json(tmp_path / "options.json")
