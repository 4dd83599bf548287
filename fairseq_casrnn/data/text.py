"""Reading, tokenising and cleaning of text.

All text files are read by :func:`text_lines`. A line ends at ``\\n`` or ``\\r\\n`` only: other
characters that end a line elsewhere (a ``\\r`` alone, those of Unicode) do occur inside sentences,
and splitting at them would shift one side of a parallel corpus against the other.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from fairseq_casrnn.errors import UserError

#: Moses' clean-corpus-n.perl drops a pair with a longer word, on either side.
MAX_WORD_LENGTH = 1000
#: Compressed files: their modules, and what one byte may become. Text shrinks by 3 to 20.
COMPRESSED = {".gz": gzip, ".xz": lzma}
MAX_EXPANSION = 200


def read_bytes(path: str | Path) -> bytes:
    """Content of a file, decompressed if its name ends in ``.gz`` or ``.xz``.

    Raises:
        UserError: the file is missing, unreadable, not completely compressed, or becomes so much
            larger that it is no text.
    """
    path = Path(path)
    module = COMPRESSED.get(path.suffix)
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
                    f"{path} becomes more than {MAX_EXPANSION} times as large when it is "
                    "decompressed, which text does not; decompress it yourself if it is right"
                )
    return bytes(content)


def text_lines(
    stream: Iterable[bytes],
    name: str | Path,
    decode: Callable[[bytes], str] = bytes.decode,
) -> Iterator[str]:
    """The lines of a text without their ends, and without a byte-order mark at its beginning.

    Args:
        stream: pieces that end after each ``\\n``, such as a file opened for bytes.
        name: of the file, for errors.
        decode: gives the text of a line (default: as UTF-8).

    Raises:
        UserError: a line is not valid UTF-8; the message gives file and line number.
    """
    for number, line in enumerate(stream, start=1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        try:
            yield decode(line)
        except UnicodeDecodeError:
            raise UserError(
                f"{name}, line {number} is not valid UTF-8; convert it to UTF-8"
            ) from None


def decode_lines(data: bytes, name: str | Path) -> list[str]:
    """The lines of a UTF-8 text. Raises UserError, see :func:`text_lines`."""
    return list(text_lines(io.BytesIO(data), name))


def read_lines(path: str | Path) -> list[str]:
    """Lines of a UTF-8 text file, plain or ``.gz``.

    Raises:
        UserError: missing or unreadable file, invalid UTF-8, or nothing but blank lines.
    """
    lines = decode_lines(read_bytes(path), path)
    if not any(line.strip() for line in lines):
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


def read_parallel(src_path: str | Path, tgt_path: str | Path) -> tuple[list[str], list[str]]:
    """Both sides of a parallel corpus, checked to be equally long."""
    src, tgt = read_lines(src_path), read_lines(tgt_path)
    check_parallel(src, tgt, src_path, tgt_path)
    return src, tgt


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, each ended by ``\\n``; makes the folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(line + "\n" for line in lines)


@cache
def _moses(lang: str):
    from sacremoses import MosesTokenizer

    return MosesTokenizer(lang=lang)


#: A full stop at the end of the last word, unless it ends a row of dots.
LAST_STOP = re.compile(r"(?<=[^\s.])\.$")


def moses_tokenize(line: str, lang: str, escape: bool = True) -> str:
    """One line as Moses' ``tokenizer.perl -l LANG`` gives it (hyphens kept, XML escaped).

    Without ``escape`` as its option ``-no-escape``: apostrophes and quotes stay as they are.

    sacremoses leaves a full stop on a last word that may be an abbreviation ("the u.s."). Moses
    splits it off since 2014, and IWSLT14 as the papers use it has it split ("the u.s .").
    """
    options = {"aggressive_dash_splits": False, "return_str": True, "escape": escape}
    tokens = _moses(lang).tokenize(line, **options)
    return LAST_STOP.sub(" .", tokens)


def _tokenize_task(job: tuple[str, str]) -> str:
    return moses_tokenize(*job)


def tokenize_lines(
    lines: Sequence[str], lang: str, lower: bool = True, workers: int = 1
) -> list[str]:
    """Moses-tokenise lines, then lower-case them (in this order: Moses reads capitals)."""
    jobs = [(line, lang) for line in lines]
    if workers > 1 and len(jobs) > 1000:
        # "spawn": the calling process may hold threads, which fork does not copy safely.
        with get_context("spawn").Pool(workers) as pool:
            out = pool.map(_tokenize_task, jobs, chunksize=500)
    else:
        out = [moses_tokenize(*job) for job in jobs]
    return [line.lower() for line in out] if lower else out


def detokenize_lines(lines: Iterable[str], lang: str) -> list[str]:
    """Undo Moses tokenisation, as far as spaces and escapes tell (``detokenizer.perl``)."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=lang)
    return [detokenizer.detokenize(line.split()) for line in lines]


def is_clean(
    src: str, tgt: str, min_len: int = 1, max_len: int = 175, ratio: float | None = 1.5
) -> bool:
    """Whether Moses' ``clean-corpus-n.perl -ratio RATIO … MIN MAX`` keeps a tokenised pair.

    Lengths are in tokens. ``ratio=None`` leaves the ratio of the two lengths unchecked.
    """
    a, b = src.split(), tgt.split()
    shorter, longer = sorted((len(a), len(b)))
    if shorter < max(min_len, 1) or longer > max_len:
        return False
    if ratio is not None and longer / shorter > ratio:
        return False
    return max(map(len, a + b)) <= MAX_WORD_LENGTH
