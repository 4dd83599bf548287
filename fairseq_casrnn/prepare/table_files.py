"""Reading tables: TSV, CSV, JSON lines and folders of texts."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.data.text import ending, is_utf16, not_text, read_bytes, text_lines
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.data.words import BYTE_ORDER_MARK
from fairseq_casrnn.errors import UserError, counted

JSON = (".json", ".jsonl", ".ndjson")
DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon"}


@dataclass
class Table:
    """The rows of a file.

    Args:
        path: the file.
        names: names of the columns; None if they can only be in the first row.
        rows: number of each row's first line, and its cells; None if a JSON object
            lacks the name.
        notes: how the file was read, for the report.
        skipped: number of malformed rows that were left out.
        unit: what ``rows`` numbers.
    """

    path: Path
    names: list[str] | None
    rows: list[tuple[int, list[str | None]]]
    notes: dict[str, object]
    skipped: int = 0
    unit: str = "line"

    def where(self, line: int) -> str:
        """The position of a row, for messages."""
        return f"{self.path}, {self.unit} {line}"


def read_utf8(path: Path, may_be_blank: bool = False) -> list[str]:
    """The lines of a UTF-8 text, ended by ``\\n`` or ``\\r\\n``.

    Raises:
        UserError: the file is missing, not UTF-8, or blank unless it may be, or its lines end with
            a lone ``\\r``.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file in it")
    data = read_bytes(path)
    if is_utf16(data):
        raise UserError(not_text(path))
    inner = data.rstrip(b"\r\n")
    if b"\n" not in inner and b"\r" in inner:
        raise UserError(
            f"{path} ends its lines with lone carriage returns; save it with line ends of Unix or "
            "Windows"
        )
    lines = [line.replace(BYTE_ORDER_MARK, "") for line in text_lines(io.BytesIO(data), path)]
    if not may_be_blank and not any(line.strip() for line in lines):
        kind = "has no text" if data else "is empty"
        raise UserError(f"{path} {kind}; give a file with at least one example")
    return lines


def read_table(path: Path, skip_malformed: bool = False) -> Table:
    """Read a table: JSON according to the file's name or first character, otherwise columns.

    Args:
        path: the file.
        skip_malformed: leave out rows with another number of cells than the first one.

    Raises:
        UserError: the file cannot be read, or a line is malformed.
    """
    lines = read_utf8(path)
    suffix = ending(path).lower()
    if suffix in JSON or first_line(lines).startswith("{"):
        return read_json_objects(path, lines)
    delimiters = {".tsv": "\t", ".csv": ",;\t"}.get(suffix, "\t,;")
    if separator := re.fullmatch("sep=([,;\t])", lines[0]):  # written for spreadsheets
        delimiters, lines[0] = separator[1], ""
    try:
        return read_columns(path, lines, delimiters)
    except UserError:
        if not skip_malformed:
            raise
    return read_columns(path, lines, delimiters, skip_malformed=True)


def first_line(lines: Sequence[str]) -> str:
    """The first line that is not blank, without spaces around it, or an empty text."""
    return next((line for line in lines if line.strip()), "").strip()


def refuse_json(path: Path, lines: Sequence[str], remedy: str) -> None:
    """Raise UserError, with the remedy, for the lines of a file of JSON objects."""
    if first_line(lines).startswith('{"'):
        raise UserError(f"{path} has JSON objects; {remedy}")


def read_columns(
    path: Path, lines: Sequence[str], delimiters: str, skip_malformed: bool = False
) -> Table:
    """Read columns with the first delimiter and quoting that give rows of equal length.

    Raises:
        UserError: no delimiter does, or commas do and semicolons, too.
    """
    first_error: UserError | None = None
    for delimiter in delimiters:
        readings = [read_quoted] if delimiter != "\t" else [read_plain, read_quoted]
        for read in readings:
            try:
                rows = read(path, lines, delimiter)
                skipped = check_width(path, rows, skip_malformed)
            except UserError as error:
                # Later errors say less: the file has a single column with those delimiters.
                first_error = first_error or error
                continue
            if read is read_plain and is_quoted(rows):
                continue
            if delimiter == "," and ";" in delimiters and has_columns(path, lines, ";"):
                raise UserError(
                    f"{path} may have commas or semicolons between its columns; put 'sep=,' or "
                    "'sep=;' in a line before the first one"
                )
            notes: dict[str, object] = {}
            if read is read_quoted:
                quoted = ", with quoted cells" if delimiter == "\t" else ""
                notes["separator"] = f"{DELIMITERS[delimiter]}{quoted}"
            return Table(path, None, rows, notes, skipped)
    assert first_error is not None  # there is at least one delimiter
    raise first_error


Rows = list[tuple[int, list[str | None]]]


def read_plain(path: Path, lines: Sequence[str], delimiter: str) -> Rows:
    """Rows of cells without quoting, as in GLUE's files."""
    return [
        (number, list(line.split(delimiter)))
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def read_quoted(path: Path, lines: Sequence[str], delimiter: str) -> Rows:
    """Rows with quoting as in spreadsheets and pandas. Raises UserError for misplaced quotes."""
    csv.field_size_limit(sys.maxsize)
    # The csv module would end a line at a lone \r.
    reader = csv.reader(
        (f"{line.replace(chr(13), ' ')}\n" for line in lines),
        delimiter=delimiter,
        skipinitialspace=True,
        strict=True,
    )
    rows: Rows = []
    begin = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append((begin, list(cells)))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}, line {begin} has a misplaced quotation mark ({error}); "
            'write "" for each quotation mark inside a quoted cell'
        ) from None
    return rows


def has_columns(path: Path, lines: Sequence[str], delimiter: str) -> bool:
    """Whether a delimiter gives rows of equal length, of at least two columns."""
    if delimiter not in first_line(lines):
        return False
    try:
        check_width(path, read_quoted(path, lines, delimiter), skip_malformed=False)
    except UserError:
        return False
    return True


def is_quoted(rows: Rows) -> bool:
    """Whether cells are quoted, with quotation marks inside doubled.

    This needs more than a few texts in quotation marks: half of all rows must have such a cell, or
    a quotation mark must be doubled.
    """
    cells = [cell for _, row in rows for cell in row if cell and '"' in cell]
    doubled = any('""' in cell[1:-1] for cell in cells)
    enclosed = all(
        len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")
        for cell in cells
    )
    return enclosed and (doubled or 2 * len(cells) > len(rows))


def check_width(path: Path, rows: Rows, skip_malformed: bool) -> int:
    """Remove empty cells at the end of long rows, and make all rows equally long.

    Returns:
        The number of rows removed because they have another number of cells than the first one.

    Raises:
        UserError: a row has another number of cells and ``skip_malformed`` is not set, or more than
            a tenth of all rows has.
    """
    if not rows:
        raise UserError(f"{path} only has empty cells; give a file with at least one example")
    width = len(rows[0][1])
    if width < 2:
        raise UserError(
            f"{path}, line {rows[0][0]} has a single column; separate text and label by a tab, or "
            "give CSV or JSON lines"
        )
    for _, cells in rows:
        while len(cells) > width and not (cells[-1] or "").strip():
            cells.pop()
    kept = [row for row in rows if len(row[1]) == width]
    skipped = len(rows) - len(kept)
    if skipped and (not skip_malformed or 10 * skipped > len(rows)):
        line, cells = next(row for row in rows if len(row[1]) != width)
        remedy = "or leave such rows out by --skip-malformed"
        if skip_malformed:
            remedy = f"{skipped} of {len(rows)} rows are too many for --skip-malformed to leave out"
        raise UserError(
            f"{path}, line {line} has {counted(len(cells), 'column')} instead of {width}, "
            f"as in line {rows[0][0]}; correct it, enclose text that holds the separator in "
            f"quotation marks, {remedy}"
        )
    rows[:] = kept
    return skipped


def read_json_objects(path: Path, lines: Sequence[str]) -> Table:
    """Read a file with a JSON object in each line, or with a list of objects.

    Raises:
        UserError: an entry is not a JSON object, or there is one object with lists or objects.
    """
    unit = "line"
    if first_line(lines).startswith("["):
        unit = "entry"
        entries = list(enumerate(parsed(path, 1, "\n".join(lines), list), start=1))
    else:
        entries = [
            (number, parsed(path, number, line, dict))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
    if not entries:
        raise UserError(f"{path} has an empty list; give a file with at least one example")
    for number, entry in entries:
        if not isinstance(entry, dict):
            raise UserError(f"{path}, entry {number} is not a JSON object; correct it")
    values = entries[0][1].values()
    if len(entries) == 1 and values and all(isinstance(value, (dict, list)) for value in values):
        raise UserError(
            f"{path} is a single object of lists or objects; write one for each row (pandas: "
            "to_json(FILE, orient='records', lines=True))"
        )
    names = list(dict.fromkeys(name for _, entry in entries for name in entry))
    rows: Rows = [
        (number, [as_text(entry[name]) if name in entry else None for name in names])
        for number, entry in entries
    ]
    return Table(path, names, rows, {}, unit=unit)


def parsed(path: Path, number: int, text: str, kind: type):
    """Parse a JSON value of type ``kind``. Raises UserError if it is not one."""
    try:
        value = parse_json(text)
        if not isinstance(value, kind):
            raise ValueError(f"it is not {'an object' if kind is dict else 'a list'}")
    except ValueError as error:
        raise UserError(f"{path}, line {number} is not JSON ({error}); correct it") from None
    return value


def as_text(value) -> str:
    """A JSON string, number or boolean as text; empty for other values and NaN."""
    if isinstance(value, bool):
        return str(value).lower()
    if value != value:  # Python writes a missing value as NaN
        return ""
    return str(value) if isinstance(value, (str, int, float)) else ""


def read_folders(folder: Path) -> Table:
    """Read a folder with a subfolder for each label and a file for each text: ``pos/1.txt``.

    Raises:
        UserError: there are fewer than two labels, a folder is in that of a label, or a file is not
            UTF-8.
    """
    labels = sorted(path for path in folder.iterdir() if path.is_dir() and not is_hidden(path))
    notes: dict[str, object] = {}
    if any(path.name == "unsup" for path in labels):  # unlabelled texts of the IMDb reviews
        labels = [path for path in labels if path.name != "unsup"]
        notes["left out"] = f"{folder / 'unsup'}"
    rows: Rows = []
    for label in labels:
        for file in sorted(path for path in label.iterdir() if not is_hidden(path)):
            if file.is_dir():
                raise UserError(
                    f"{file} is a folder in that of a class; put its texts into {label} itself"
                )
            text = "\n".join(read_utf8(file, may_be_blank=True))
            rows.append((len(rows) + 1, [text, label.name]))
    if len({cells[1] for _, cells in rows}) < 2:
        names = ", ".join(path.name for path in labels) or "none"
        raise UserError(
            f"{folder} must have a folder for each class, with a file for each text, but has "
            f"{names}; name a file, or another folder"
        )
    return Table(folder, ["text", "label"], rows, notes, unit="file")


def is_hidden(path: Path) -> bool:
    """Whether a file or folder is not the user's: hidden, or made by a file browser."""
    return path.name.startswith(".") or path.name in ("__MACOSX", "desktop.ini", "Thumbs.db")
