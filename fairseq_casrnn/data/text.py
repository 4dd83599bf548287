"""Reading, tokenising and cleaning text.

All text files are read by :func:`text_lines`. Only ``\\n`` and ``\\r\\n`` end a line. Other line
separators (a lone ``\\r``, those of Unicode) occur inside sentences; splitting there would misalign
the sides of a parallel corpus.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path

from fairseq_casrnn.data.words import moses_tokenize
from fairseq_casrnn.errors import UserError

#: Moses' clean-corpus-n.perl drops a pair with a longer word, on either side.
MAX_WORD_LENGTH = 1000
#: Modules for compressed files, and the maximum ratio of compression. Text shrinks by 3 to 20.
COMPRESSED = {".gz": gzip, ".xz": lzma}
MAX_EXPANSION = 200
#: The code of a language, such as en.
LANGUAGE = re.compile("[a-z]{2,3}")
#: In files with a word per line: comments ("# sent_id = 3", "# id 6f1a"), and the first word of a
#: line between documents.
COMMENT = re.compile(r"#\s*(?:\w[\w ]* = |id\s)")
DOCUMENT = "-DOCSTART-"

#: A sentence and its translation.
Pair = tuple[str, str]


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, decompressed if its name ends in ``.gz`` or ``.xz``.

    Raises:
        UserError: the file is missing, unreadable or truncated, or its decompressed size is
            implausible for text.
    """
    path = Path(path)
    module = COMPRESSED.get(path.suffix.lower())
    try:
        return path.read_bytes() if module is None else _decompress(module, path)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the path") from None
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as err:
        kind = "gzip" if module is gzip else "xz"
        raise UserError(
            f"{path} is not a complete {kind} file ({err}); copy or download it again"
        ) from None
    except OSError as err:
        raise UserError(f"{path} cannot be read ({err.strerror or err}); check the path") from None


def _decompress(module, path: Path) -> bytes:
    most = 2**24 + MAX_EXPANSION * path.stat().st_size
    content = bytearray()
    with module.open(path) as file:
        while piece := file.read(2**20):
            content += piece
            if len(content) > most:
                raise UserError(
                    f"{path} is more than {MAX_EXPANSION} times as large when decompressed, which "
                    "is implausible for text; if it is right, decompress it yourself"
                )
    return bytes(content)


def ending(path: Path) -> str:
    """The last suffix of a file's name besides ``.gz`` and ``.xz``: ``.csv`` of ``x.csv.gz``."""
    return Path(path.stem if path.suffix.lower() in COMPRESSED else path.name).suffix


def is_utf16(data: bytes) -> bool:
    """Whether the start of a file, or all of it, has UTF-16's byte-order mark or a zero byte."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data


def not_text(name: str | Path) -> str:
    """The message for a file of which :func:`is_utf16` is true."""
    return f"{name} is UTF-16 or not text; save it as UTF-8"


def text_lines(
    stream: Iterable[bytes],
    name: str | Path,
    decode: Callable[[bytes], str] = bytes.decode,
) -> Iterator[str]:
    """The lines of a text without line ends and without a byte-order mark at the start.

    Args:
        stream: lines that end with ``\\n``, such as a file opened in binary mode.
        name: name of the file, for messages.
        decode: decodes a line (default: UTF-8).

    Raises:
        UserError: a line is not valid UTF-8, or the text is UTF-16.
    """
    for number, line in enumerate(stream, start=1):
        # Without its mark, UTF-16 of plain English is valid UTF-8 with zero bytes.
        if number == 1 and is_utf16(line):
            raise UserError(not_text(name))
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        try:
            yield decode(line)
        except UnicodeDecodeError:
            raise UserError(
                f"{name}, line {number} is not valid UTF-8; convert it to UTF-8 (a file from "
                "Excel is often cp1252: iconv -f cp1252 -t utf-8 IN >OUT)"
            ) from None


def decode_lines(data: bytes, name: str | Path) -> list[str]:
    """The lines of a UTF-8 text. Raises UserError as :func:`text_lines`."""
    return list(text_lines(io.BytesIO(data), name))


def read_lines(path: str | Path, may_be_blank: bool = False) -> list[str]:
    """The lines of a UTF-8 text file, possibly compressed.

    Raises:
        UserError: the file is missing, unreadable, not UTF-8, or blank unless it may be.
    """
    lines = decode_lines(read_bytes(path), path)
    if not may_be_blank and not any(line.strip() for line in lines):
        raise UserError(f"{path} is empty; a corpus with at least one sentence is needed")
    return lines


def check_parallel(
    src: Sequence,
    tgt: Sequence,
    src_name: object,
    tgt_name: object,
    relation: str = "be the translation of",
) -> None:
    """Raise UserError unless both sides have the same number of lines."""
    if len(src) != len(tgt):
        raise UserError(
            f"{src_name} has {len(src)} lines but {tgt_name} has {len(tgt)}; "
            f"line n of one must {relation} line n of the other"
        )


def read_parallel(src_path: str | Path, tgt_path: str | Path) -> list[Pair]:
    """The pairs of two parallel files.

    Raises:
        UserError: a file cannot be read, or they differ in length.
    """
    src, tgt = read_lines(src_path), read_lines(tgt_path)
    check_parallel(src, tgt, src_path, tgt_path)
    return list(zip(src, tgt, strict=True))


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, each with ``\\n``; creates the folder if necessary."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(line + "\n" for line in lines)


def tokenize_lines(lines: Sequence[str], lang: str, workers: int = 1) -> list[str]:
    """Moses-tokenise lines, then lower-case them (not before: Moses depends on capitals)."""
    jobs = [(line, lang) for line in lines]
    if workers > 1 and len(jobs) > 1000:
        # "spawn", since forking a process that has threads is not safe.
        with get_context("spawn").Pool(workers) as pool:
            out = pool.starmap(moses_tokenize, jobs, chunksize=500)
    else:
        out = [moses_tokenize(*job) for job in jobs]
    return [line.lower() for line in out]


def tokenize_pairs(pairs: Sequence[Pair], languages: Pair, workers: int = 1) -> list[Pair]:
    """The pairs, tokenised and lower-cased by :func:`tokenize_lines`."""
    source, target = (
        tokenize_lines([pair[side] for pair in pairs], language, workers)
        for side, language in enumerate(languages)
    )
    return list(zip(source, target, strict=True))


def detokenize_lines(lines: Iterable[str], lang: str) -> list[str]:
    """Undo Moses tokenisation, like ``detokenizer.perl``."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=lang)
    return [detokenizer.detokenize(line.split()) for line in lines]


def is_clean(src: str, tgt: str, max_len: int = 175, ratio: float | None = 1.5) -> bool:
    """Whether Moses' ``clean-corpus-n.perl -ratio RATIO … 1 MAX_LEN`` keeps a tokenised pair.

    Lengths are in tokens. With ``ratio=None`` the ratio of the lengths is not checked.
    """
    a, b = src.split(), tgt.split()
    shorter, longer = sorted((len(a), len(b)))
    if shorter < 1 or longer > max_len:
        return False
    if ratio is not None and longer / shorter > ratio:
        return False
    return max(map(len, a + b)) <= MAX_WORD_LENGTH
