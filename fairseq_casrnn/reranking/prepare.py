"""``casrnn rerank prepare``: training data for models that rescore n-best lists."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from fairseq_casrnn.data.folder import SPLITS, run_fairseq_preprocess
from fairseq_casrnn.data.prepared import prepared_folder, prepared_languages
from fairseq_casrnn.data.subwords import find_units
from fairseq_casrnn.data.text import read_lines, write_lines
from fairseq_casrnn.diagnostics.explain import explained
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.reranking.nbest import reverse

FOLDERS = ("right_to_left", "backwards", "lm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Make three data sets from a prepared translation corpus: right_to_left, with target "
        "sentences reversed; backwards, with source and target swapped; lm, of the target side."
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        required=True,
        type=prepared_folder,
        help="prepared translation corpus",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder to write")


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if ``--out`` exists or ``--data`` is not prepared."""
    source, target = prepared_languages(args.data)
    if args.out.exists():
        raise UserError(f"{args.out} exists; remove it to prepare again, or give another --out")
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(prefix=f".{args.out.name}.", dir=args.out.parent)
    except OSError:
        raise UserError(f"--out {args.out} cannot be created; give another folder") from None
    with place as folder:
        stage = Path(folder, "new")
        write_texts(args.data, stage, source, target)
        binarise(args.data, stage, source, target)
        stage.rename(args.out)
    print(f"prepared {args.out}/{{{','.join(FOLDERS)}}}")


def units(data: Path) -> str:
    """The units of a corpus's binarised texts: ``bpe`` or ``tok``. Raises UserError for others."""
    found, _ = find_units(data / "data-bin")
    if found == "sentencepiece":
        raise UserError(
            f"{data} has SentencePiece units, which reranking cannot join; prepare it with "
            "--bpe-operations"
        )
    return "bpe" if found else "tok"


def write_texts(data: Path, out: Path, source: str, target: str) -> None:
    """Write the texts, ``out/FOLDER/text``."""
    for name in FOLDERS:
        (out / name / "text").mkdir(parents=True)
    for split in SPLITS:
        text = f"{data}/text/{split}.{units(data)}"
        for language in (source, target):
            shutil.copy(f"{text}.{language}", out / "backwards" / "text" / f"{split}.{language}")
        right_to_left = out / "right_to_left" / "text"
        shutil.copy(f"{text}.{source}", right_to_left / f"{split}.{source}")
        lines = read_lines(f"{text}.{target}", may_be_blank=True)
        write_lines(right_to_left / f"{split}.{target}", map(reverse, lines))
        shutil.copy(f"{text}.{target}", out / "lm" / "text" / split)


def binarise(data: Path, out: Path, source: str, target: str) -> None:
    """Binarise the texts to ``out/FOLDER/data-bin``, with the dictionaries of ``data``."""

    def dictionary(language: str) -> str:
        return f"{data}/data-bin/dict.{language}.txt"

    def pair(first: str, second: str) -> list[str]:
        words = ["-s", first, "-t", second, "--srcdict", dictionary(first)]
        return [*words, "--tgtdict", dictionary(second)]

    options = {
        "right_to_left": pair(source, target),
        "backwards": pair(target, source),
        "lm": ["--only-source", "--srcdict", dictionary(target)],
    }
    for name, language_options in options.items():
        command = [f"--destdir={out / name / 'data-bin'}", *language_options]
        command += [f"--{split}pref={out / name / 'text' / split}" for split in SPLITS]
        with explained():
            run_fairseq_preprocess(command)
