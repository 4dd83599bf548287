"""IWSLT 2014 German–English TED talks: ``python -m fairseq_casrnn.data.corpora.iwslt14``.

Makes the papers' data set from the official archive, in the steps of fairseq's
``prepare-iwslt14.sh``: 160,239 training, 7,283 validation and 6,750 test pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
import shutil
import sys
import tarfile
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fairseq_casrnn.data.text import Pair, check_parallel, decode_lines, is_clean, tokenize_pairs
from fairseq_casrnn.data.translation import ParallelCorpus, command
from fairseq_casrnn.errors import UserError, quoted
from fairseq_casrnn.files import replacing

LANGUAGES = ("de", "en")
URL = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
MD5 = "10936dfdf616504ddbd844e91b94ef4a"
TEST_SETS = (
    "IWSLT14.TED.dev2010",
    "IWSLT14.TEDX.dev2012",
    "IWSLT14.TED.tst2010",
    "IWSLT14.TED.tst2011",
    "IWSLT14.TED.tst2012",
)
NAMES = {f"train.tags.de-en.{lang}" for lang in LANGUAGES} | {
    f"{stem}.de-en.{lang}.xml" for stem in TEST_SETS for lang in LANGUAGES
}
LARGEST = 2**28  # maximum bytes of all files, several times the official archive's
#: Every 23rd cleaned training pair is for validation.
VALID_EVERY = 23

DROPPED_TAGS = ("<url>", "<talkid>", "<keywords>")
STRIPPED_TAGS = re.compile(r"</?(?:title|description)>")
SEGMENT_START = re.compile(r'<seg id="[0-9]*">\s*')


def parse_train(lines: Iterable[str]) -> list[str]:
    """Sentences of ``train.tags.de-en.LANG``: transcript lines, titles and descriptions."""
    return [
        STRIPPED_TAGS.sub("", line)
        for line in lines
        if not any(tag in line for tag in DROPPED_TAGS)
    ]


def parse_xml(lines: Iterable[str]) -> list[str]:
    """Segments of a ``….LANG.xml`` file, in order, with entities as written.

    The files have one ``<seg>`` per line and are not always well-formed XML, so they are read line
    by line, as in the original recipe.
    """
    segments = []
    for line in lines:
        if "<seg id" in line:
            text, end, rest = SEGMENT_START.sub("", line).partition("</seg>")
            segments.append(text.rstrip() + rest.lstrip() if end else text)
    return segments


class Archive:
    """The texts of the official ``.tgz``, found by name in any of its folders.

    Raises:
        UserError: the archive is missing, truncated, too large or not a gzipped tar, or it has two
            files with the same name.
    """

    def __init__(self, path: Path):
        self.path = path
        self.files: dict[str, bytes] = {}
        found: dict[str, str] = {}
        try:
            with tarfile.open(path, "r:*") as tar:
                for member in self._members(tar):
                    name = Path(member.name).name
                    if name in found:
                        raise UserError(
                            f"{path} holds two files {name}, {quoted(found[name])} and "
                            f"{quoted(member.name)}; keep one of them"
                        )
                    found[name] = member.name
                    file = tar.extractfile(member)
                    assert file is not None  # it is a regular file
                    self.files[name] = file.read()
        except FileNotFoundError:
            raise UserError(f"{path} does not exist; give the archive with --archive") from None
        except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as err:
            why = str(err).partition("\n")[0]  # tarfile lists everything it tried
            raise UserError(
                f"{path} is not a complete .tgz archive ({why}); download it again"
            ) from None

    def _members(self, tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
        """The regular files to read, after checking the size of all files."""
        total = 0
        for member in tar:
            if member.size < 0:  # would be an endless loop in Python before 3.11.14
                raise tarfile.ReadError("a negative size")
            total += member.size
            if total > LARGEST:
                raise UserError(
                    f"{self.path} holds more than {LARGEST // 2**20} MiB of files, so it is not "
                    "the IWSLT14 de-en archive; give that one"
                )
            if member.isreg() and Path(member.name).name in NAMES:
                yield member
        while rest := tar.fileobj.read(2**20):  # up to the checksum at the end
            total += len(rest)
            if total > LARGEST:
                raise tarfile.ReadError("data after its end")

    def lines(self, name: str) -> list[str]:
        """The lines of one file of the archive."""
        if name not in self.files:
            raise UserError(f"{self.path} holds no {name}; it is not the IWSLT14 de-en archive")
        return decode_lines(self.files[name], f"{self.path}:{name}")


def read_pairs(
    archive: Archive, names: Sequence[str], parse: Callable[[Iterable[str]], list[str]]
) -> list[Pair]:
    """The pairs of two files of the archive. Raises UserError if they differ in length."""
    source, target = (parse(archive.lines(name)) for name in names)
    check_parallel(source, target, *names)
    return list(zip(source, target, strict=True))


def read_raw(archive: Archive) -> tuple[list[Pair], list[Pair]]:
    """The untokenised training and test pairs. Raises UserError if files are missing or damaged."""
    train = read_pairs(archive, [f"train.tags.de-en.{lang}" for lang in LANGUAGES], parse_train)
    test = []
    for stem in TEST_SETS:
        names = [f"{stem}.de-en.{lang}.xml" for lang in LANGUAGES]
        pairs = read_pairs(archive, names, parse_xml)
        if not pairs:
            raise UserError(f"{archive.path}:{names[0]} holds no <seg> line")
        test += pairs
    return train, test


def split_train(pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Pairs 23, 46, … (counting from 1) for validation, the others for training."""
    train = [pair for number, pair in enumerate(pairs, start=1) if number % VALID_EVERY]
    return {"train": train, "valid": pairs[VALID_EVERY - 1 :: VALID_EVERY]}


def read_corpus(path: Path, workers: int = 1) -> ParallelCorpus:
    """Parse, tokenise, clean (1–175 tokens, ratio 1.5), lower-case and split the archive."""
    raw_train, raw_test = read_raw(Archive(path))
    print(f"tokenising {len(raw_train)} training and {len(raw_test)} test pairs", flush=True)
    pairs = tokenize_pairs(raw_train, LANGUAGES, workers)
    kept = [pair for pair in pairs if is_clean(*pair)]
    splits = split_train(kept)
    # The original recipe replaces ’ by ', only in the test sets.
    test = [(source.replace("’", "'"), target.replace("’", "'")) for source, target in raw_test]
    splits["test"] = tokenize_pairs(test, LANGUAGES, workers)
    notes: dict[str, object] = {
        "training lines": len(pairs),
        "training lines dropped": len(pairs) - len(kept),
    }
    return ParallelCorpus(*LANGUAGES, splits, raw_test, notes)


def download(folder: Path, url: str = URL, md5: str = MD5) -> Path:
    """Download the archive into ``folder`` unless it exists, and check its MD5.

    Raises:
        UserError: the download failed, or the file has another MD5.
    """
    target = folder / "de-en.tgz"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"downloading {url}", flush=True)
        try:
            with (
                urllib.request.urlopen(url, timeout=60) as stream,
                replacing(target) as draft,
                open(draft, "wb") as file,
            ):
                shutil.copyfileobj(stream, file)
        except OSError as err:
            raise UserError(
                f"{url} cannot be downloaded ({err}); get de-en.tgz of IWSLT 2014 in another way "
                "and give it with --archive FILE"
            ) from None
    found = hashlib.md5(target.read_bytes(), usedforsecurity=False).hexdigest()
    if found != md5:
        raise UserError(
            f"{target} has MD5 {found}, not {md5}: delete it to download it again, or use it as it "
            f"is with --archive {target}"
        )
    return target


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument("--archive", type=Path, help=f"de-en.tgz (default: download from {URL})")


main = command(
    "Parse, tokenise, clean and lower-case IWSLT14 de-en, apply joint BPE, and binarise it.",
    lambda args: read_corpus(args.archive or download(args.out), args.workers),
    options,
)


if __name__ == "__main__":
    sys.exit(main())
