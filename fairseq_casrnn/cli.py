"""The ``casrnn`` command."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_casrnn import __version__
from fairseq_casrnn.data.command import Parser, captured_log, run_main

# Each module has add_arguments(parser) and run(args).
COMMANDS = {
    "train": ("fairseq_casrnn.recipes.own_data", "train on data that prepare made ready"),
    "evaluate": (
        "fairseq_casrnn.evaluation.own_data",
        "test scores, predictions and errors of what train trained",
    ),
    "average": ("fairseq_casrnn.evaluation.average", "the mean of several checkpoints' weights"),
    "data clusters": (
        "fairseq_casrnn.analysis.clusters",
        "tokens for the cells of a second-order LSTM, by k-means on embeddings",
    ),
    "analyze syneval": (
        "fairseq_casrnn.analysis.syneval",
        "grammatical against ungrammatical sentences",
    ),
    "analyze dyck": ("fairseq_casrnn.analysis.dyck", "how well a model closes brackets"),
    "analyze gates": (
        "fairseq_casrnn.analysis.gates",
        "how far the gates on the cell below are open",
    ),
    "analyze routing": (
        "fairseq_casrnn.analysis.routing",
        "which cell of a second-order LSTM takes which word",
    ),
    "analyze subspaces": (
        "fairseq_casrnn.analysis.subspaces",
        "how different the cells of a second-order LSTM are",
    ),
    "data dyck": ("fairseq_casrnn.data.dyck", "strings of brackets of bounded depth"),
    "export": (
        "fairseq_casrnn.export.command",
        "a trained model as ONNX, or as a program of torch.export",
    ),
    "predict": (
        "fairseq_casrnn.evaluation.predict",
        "classify lines of text with a trained sentence encoder",
    ),
    "serve": (
        "fairseq_casrnn.serving.command",
        "a page and a JSON API that put text to a trained model",
    ),
    "prepare classification": (
        "fairseq_casrnn.prepare.classification",
        "texts with labels of your own: TSV, CSV, JSON lines, folders",
    ),
    "prepare tagging": (
        "fairseq_casrnn.prepare.tagging",
        "words with tags of your own, in columns: CoNLL, CoNLL-U, GermEval",
    ),
    "prepare translation": (
        "fairseq_casrnn.prepare.translation",
        "sentence pairs of your own: two files, or a tab-separated one",
    ),
    "prepare language-model": (
        "fairseq_casrnn.prepare.language_model",
        "a text of your own, for a language model",
    ),
    "report": (
        "fairseq_casrnn.report.command",
        "curves, errors, settings and environment of runs, as one page of HTML",
    ),
    "rerank prepare": (
        "fairseq_casrnn.reranking.prepare",
        "data for models that score the n-best lists of a translation corpus",
    ),
    "rerank all": (
        "fairseq_casrnn.reranking.pipeline",
        "make n-best lists, score them, tune and apply: the three below in one command",
    ),
    "rerank score": (
        "fairseq_casrnn.reranking.score",
        "a model's scores of the hypotheses of an n-best list",
    ),
    "rerank tune": ("fairseq_casrnn.reranking.tune", "weights of several scores, for BLEU"),
    "rerank apply": (
        "fairseq_casrnn.reranking.apply",
        "the best hypotheses under tuned weights, and their BLEU",
    ),
    "results add": (
        "fairseq_casrnn.results.add",
        "runs of this repository as lines of results/PAGE.jsonl",
    ),
    "results render": (
        "fairseq_casrnn.results.render",
        "the pages of docs/results from results/, or check that they are up to date",
    ),
    "translate": (
        "fairseq_casrnn.evaluation.translate",
        "translate lines of text with a trained model",
    ),
    "pack": ("fairseq_casrnn.evaluation.pack", "a trained model in one file, to hand on"),
    "tag": ("fairseq_casrnn.evaluation.tag", "tag the words of lines of text"),
    "warm-up": ("fairseq_casrnn.warm_up", "compile ahead the GPU's kernels of a training"),
    "perplexity": ("fairseq_casrnn.evaluation.perplexity", "perplexity of a language model"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``casrnn`` with ``argv`` (default: the command line's) and return its exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["run"]:  # its options depend on the recipe
        from fairseq_casrnn.recipes.command import main as run_recipe

        return run_recipe(argv[1:])
    extra = []
    if argv[:1] == ["train"] and "--" in argv:  # argparse would take them for operands
        at = argv.index("--")
        argv, extra = argv[:at], argv[at + 1 :]
    args = _parser(argv).parse_args(argv)
    args.extra = extra

    def run() -> None:
        with captured_log():  # fairseq and matplotlib say much
            args.run(args)

    return run_main(run)


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """The parser for ``argv``: of all commands it knows the names, and the options of the one."""
    parser = Parser(prog="casrnn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    user_dir = commands.add_parser(
        "user-dir", help="print the folder to give to fairseq's --user-dir"
    )
    user_dir.set_defaults(run=_user_dir)
    commands.add_parser("run", help="prepare, train or evaluate as a recipe says")
    text = "print what this package changes in fairseq, and why"
    commands.add_parser("patches", help=text, description=text).set_defaults(run=_patches)
    groups: dict[tuple[str, ...], Any] = {(): commands}
    for name, (module, text) in COMMANDS.items():
        *group, command = name.split()
        if tuple(group) not in groups:
            inner = commands.add_parser(*group, help=f"casrnn {group[0]} --help lists what")
            groups[tuple(group)] = inner.add_subparsers(metavar="WHAT", required=True)
        child = groups[tuple(group)].add_parser(command, help=text, description=text)
        if argv[: len(name.split())] == name.split():  # importing all would take seconds
            command_module = importlib.import_module(module)
            command_module.add_arguments(child)
            child.set_defaults(run=command_module.run)
    return parser


def _user_dir(args: argparse.Namespace) -> None:
    print(Path(__file__).resolve().parent)


def _patches(args: argparse.Namespace) -> None:
    from fairseq_casrnn.patches.install import omitted_kinds, omitted_line
    from fairseq_casrnn.patches.table import columns

    omitted = omitted_kinds()
    print(columns(omitted))
    if omitted:
        print(f"\n{omitted_line(omitted)}")


if __name__ == "__main__":
    sys.exit(main())
