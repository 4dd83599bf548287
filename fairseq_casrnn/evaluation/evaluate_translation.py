"""Translate a test set with trained runs, for ``casrnn evaluate`` and the recipes' ``evaluate.sh``.

``python -m fairseq_casrnn.evaluation.evaluate_translation --data DIR --out DIR`` evaluates
``DIR/ARCH/seedN``.
"""

from __future__ import annotations

import argparse
import re
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

import fairseq_casrnn
from fairseq_casrnn.console.program import Parser, captured_log, run_main, show, split_at_dashes
from fairseq_casrnn.data.prepared import prepared_languages
from fairseq_casrnn.data.subwords import find_units
from fairseq_casrnn.data.text import detokenize_lines, read_lines
from fairseq_casrnn.diagnostics.explain import explained
from fairseq_casrnn.diagnostics.names import shorten_choices
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.evaluation.bleu import read_generated, score_generated
from fairseq_casrnn.evaluation.prediction_files import TRANSLATIONS, as_lines
from fairseq_casrnn.evaluation.runs import (
    Result,
    add_run_arguments,
    choose_checkpoint,
    evaluate_and_compare,
    run_name,
    write_predictions,
)
from fairseq_casrnn.files import replacing
from fairseq_casrnn.plugin import USER_DIR
from fairseq_casrnn.runs.layout import PREDICTIONS

# Options of fairseq-generate: the model's own limits, from its training, decide; fairseq's default
# may be lower.
MODEL_LIMITS = ("--max-source-positions", "100000", "--max-target-positions", "100000")
# Options of fairseq-generate that would make the recorded result wrong or prevent scoring.
_REFUSED_OPTIONS = {
    "--gen-subset": "these are the scores of the test set; drop --gen-subset, or call "
    "fairseq-generate and python -m fairseq_casrnn.evaluation.bleu",
    "--beam": "the recorded beam size would be wrong; give --beam before --",
    "--path": "the checkpoint is that of a run; drop --path, and choose it with --arch, --seed and "
    "--checkpoint before --",
    "--num-shards": "the score needs the whole test set; drop --num-shards",
    "--prefix-size": "translations that start with words of the reference cannot be scored; drop "
    "--prefix-size",
    "--score-reference": "the references are not translations; drop --score-reference, or call "
    "fairseq-generate",
    "--quiet": "the score needs the translations that fairseq-generate prints; drop --quiet",
}
_SPEED = re.compile(r"Translated ([\d,]+) sentences .* in ([\d.]+)s")


def generate(
    data: Path, checkpoint: Path, output: Path, beam: int, extra: Sequence[str]
) -> float | None:
    """Run ``fairseq-generate`` on the test set; ``output`` is written completely or not at all.

    Args:
        data: prepared folder.
        checkpoint: the model.
        output: file for the output of fairseq-generate.
        beam: beam size.
        extra: further options of fairseq-generate.

    Returns:
        Sentences per second as reported by fairseq, or None.

    Raises:
        UserError: an option is invalid, or the checkpoint does not fit the data.
    """
    command = [str(data / "data-bin"), "--user-dir", USER_DIR]
    command += ["--path", str(checkpoint), "--beam", str(beam), "--gen-subset", "test"]
    command += [*MODEL_LIMITS, "--max-tokens", "4000"]
    units, _ = find_units(data / "data-bin")
    command += ["--post-process", units] if units else []
    with explained(), replacing(output) as draft, open(draft, "w", encoding="utf-8") as file:
        log = _run_generate([*command, *extra], file)
    speed = _SPEED.search(log)
    if speed is None:
        return None
    seconds = float(speed[2])  # rounded, so it may be 0.0
    return float(speed[1].replace(",", "")) / seconds if seconds else None


def _run_generate(command: list[str], file: TextIO) -> str:
    """Run fairseq-generate in this process, write its output to ``file`` and return its log."""
    with captured_log() as log:
        from fairseq import options
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq_cli import generate as fairseq_generate

        fairseq_casrnn.register()
        parser = options.get_generation_parser()
        parser.error = _option_error  # fairseq's would print hundreds of options first
        args = options.parse_args_and_arch(parser, input_args=command)
        fairseq_generate._main(convert_namespace_to_omegaconf(args), file)
        return log.getvalue()


def _option_error(message: str) -> NoReturn:
    raise UserError(f"fairseq-generate: {shorten_choices(message)}")


def evaluate(run: Path, args: argparse.Namespace) -> Result:
    """Translate the test set with a run's checkpoint, write and print the result.

    The output of fairseq-generate is in ``generated.CHECKPOINT.beamN.txt``. Where the data has its
    original text, ``test.predictions.tsv`` has the translations (:mod:`.prediction_files`).

    Args:
        run: its folder.
        args: options of :func:`.runs.add_run_arguments`, ``beam``, and ``extra``: further options
            of fairseq-generate. Each choice of these has its own file of its output, and the files
            of predictions are left as they are.

    Returns:
        ``checkpoint``, ``subset``, ``beam``, the scores of :func:`.bleu.score_generated`,
        ``sentences_per_second`` and, with ``extra``, ``options``.

    Raises:
        UserError: the checkpoint, the data or an option of fairseq-generate cannot be used.
    """
    data, beam, options = args.data, args.beam, " ".join(args.extra)
    checkpoint = choose_checkpoint(run, args.checkpoint)
    more = f".{zlib.crc32(options.encode()):08x}" if options else ""
    output = run / f"generated.{checkpoint.stem}.beam{beam}{more}.txt"
    speed = generate(data, checkpoint, output, beam, args.extra)
    result: Result = {"checkpoint": args.checkpoint, "subset": "test", "beam": beam}
    if options:
        result["options"] = options
    result |= score_generated(output, data / "text", prepared_languages(data)[1])
    if speed is not None:
        result["sentences_per_second"] = round(speed, 1)
    print(f"{run_name(run)}: BLEU {result['bleu']:.2f} (tokenised)", end="")
    if "sacrebleu" in result:
        print(f", sacreBLEU {result['sacrebleu']:.2f} ({result['signature']})", end="")
    print(f" on {result['sentences']} sentences", flush=True)
    if not options:
        write_translations(data, run, output, result)
    return result


def write_translations(data: Path, run: Path, output: Path, result: Result) -> None:
    """Write the translations and the result of a run, if the data has its original text."""
    source, target = prepared_languages(data)
    raw = [data / "text" / f"test.raw.{code}" for code in (source, target)]
    if not all(path.exists() for path in raw):
        return
    sources, references = map(read_lines, raw)
    found = detokenize_lines(read_generated(output, len(sources)), target)
    rows = zip(sources, references, found, strict=True)
    write_predictions(run, "test", as_lines([TRANSLATIONS, *rows]), result)
    show([f"predictions: {run / f'test.{PREDICTIONS}'}"])


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.evaluate_translation",
        description="Translate the test set with trained models; print and record BLEU.",
        epilog="Options after -- go to fairseq-generate.",
    )
    add_run_arguments(parser)
    parser.set_defaults(subset="test")
    parser.add_argument("--beam", type=int, default=10)
    own, extra = split_at_dashes(sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(own, argparse.Namespace(extra=extra))
    return run_main(lambda: _evaluate_all(args))


def _evaluate_all(args: argparse.Namespace) -> None:
    prepared_languages(args.data)  # raises UserError unless the folder is prepared
    for option in args.extra:
        if (name := option.partition("=")[0]) in _REFUSED_OPTIONS:
            raise UserError(_REFUSED_OPTIONS[name])
    check_at_least(1, beam=args.beam)
    evaluate_and_compare(args, evaluate)


if __name__ == "__main__":
    sys.exit(main())
