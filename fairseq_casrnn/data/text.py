"""Reading, tokenising and cleaning of parallel text.

Everything here works on lists of lines without line ends. A line ends at ``\\n`` only: other
characters that Unicode calls line breaks do occur inside sentences, and splitting at them would
shift one side of a parallel corpus against the other.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from fairseq_casrnn.errors import UserError

#: Moses' clean-corpus-n.perl drops a pair with a longer word, on either side.
MAX_WORD_LENGTH = 1000


def read_bytes(path: str | Path) -> bytes:
    """Content of a file, decompressed if its name ends in ``.gz``.

    Raises:
        UserError: the file is missing, unreadable or not a complete gzip file.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as err:
        raise UserError(f"{path} is not a complete gzip file ({err})") from None
    except OSError as err:
        raise UserError(f"{path} cannot be read ({err.strerror or err})") from None


def decode_lines(data: bytes, name: str | Path) -> list[str]:
    """Decode UTF-8 text and split it at ``\\n`` (and ``\\r\\n``); ``name`` is used in errors.

    Raises:
        UserError: a line is not valid UTF-8; the message gives file and line number.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data[: err.start].count(b"\n") + 1
        raise UserError(
            f"{name}, line {line} is not valid UTF-8; convert the file to UTF-8"
        ) from None
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


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
