"""n-best lists in the format of fairseq-generate."""

import itertools
from pathlib import Path

from fairseq_casrnn import cli


def nbest_text(sentences) -> str:
    """The text of a list; a sentence is (source, reference, [(score, hypothesis), …])."""
    lines = ["2020-01-01 | INFO | fairseq_cli.generate | S- and H- are no lines of the list"]
    for number, (source, reference, hypotheses) in enumerate(sentences):
        lines += [f"S-{number}\t{source}"]
        lines += [f"T-{number}\t{reference}"] if reference is not None else []
        for score, text in hypotheses:
            lines += [f"H-{number}\t{score}\t{text}", f"D-{number}\t{score}\t{text}"]
            lines += [f"P-{number}\t-0.1000"]
    return "\n".join([*lines, "Generate test with beam=2: BLEU4 = 1.00"]) + "\n"


def write_nbest(path: Path, sentences) -> Path:
    path.write_text(nbest_text(sentences), encoding="utf-8")
    return path


def rerank(capsys, *command, status=0) -> str:
    """Run ``casrnn rerank …``; return its output, or its error if ``status`` is not 0."""
    capsys.readouterr()
    assert cli.main(["rerank", *map(str, command)]) == status
    out, error = capsys.readouterr()
    if status:
        assert out == ""
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        return error
    return out


def every_choice(lists):
    """All choices of one hypothesis per sentence."""
    return itertools.product(*(range(int(row.sum())) for row in lists.mask))
