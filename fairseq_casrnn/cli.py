"""The ``casrnn`` command."""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_casrnn import __version__
from fairseq_casrnn.console.program import Parser, captured_log, run_main, split_at_dashes
from fairseq_casrnn.plugin import USER_DIR, add_user_dir, use_plugin

# Each module has add_arguments(parser) and run(args).
COMMANDS = {
    "prepare classification": (
        "fairseq_casrnn.prepare.classification",
        "prepare your own labelled texts: TSV, CSV, JSON lines, folders",
    ),
    "prepare tagging": (
        "fairseq_casrnn.prepare.tagging",
        "prepare your own tagged words, in columns: CoNLL, CoNLL-U, GermEval",
    ),
    "prepare translation": (
        "fairseq_casrnn.prepare.translation",
        "prepare your own parallel text: two files, or a tab-separated one",
    ),
    "prepare language-model": (
        "fairseq_casrnn.prepare.language_model",
        "prepare your own text for a language model",
    ),
    "train": ("fairseq_casrnn.recipes.train_command", "train on data from casrnn prepare"),
    "evaluate": (
        "fairseq_casrnn.evaluation.evaluate_command",
        "evaluate the models of casrnn train: scores, predictions, errors",
    ),
    "predict": (
        "fairseq_casrnn.inference.predict",
        "classify lines of text with a trained sentence encoder",
    ),
    "tag": ("fairseq_casrnn.inference.tag", "tag the words of lines of text"),
    "translate": (
        "fairseq_casrnn.inference.translate",
        "translate lines of text with a trained model",
    ),
    "perplexity": (
        "fairseq_casrnn.evaluation.perplexity",
        "compute the perplexity of a language model",
    ),
    "serve": (
        "fairseq_casrnn.serving.command",
        "serve a trained model as a web page and a JSON API",
    ),
    "report": (
        "fairseq_casrnn.report.command",
        "report on runs in one HTML page: curves, errors, settings, environment",
    ),
    "pack": ("fairseq_casrnn.inference.pack", "pack a trained model into one file"),
    "export": (
        "fairseq_casrnn.export.command",
        "export a trained model as ONNX, or as a program of torch.export",
    ),
    "average": ("fairseq_casrnn.inference.average", "average the weights of several checkpoints"),
    "analyze gates": (
        "fairseq_casrnn.analysis.gates",
        "measure how far the gates on the cell state below are open",
    ),
    "analyze routing": (
        "fairseq_casrnn.analysis.routing",
        "show which cell of a second-order LSTM takes which word",
    ),
    "analyze subspaces": (
        "fairseq_casrnn.analysis.subspaces",
        "measure how different the cells of a second-order LSTM are",
    ),
    "analyze syneval": (
        "fairseq_casrnn.analysis.syneval",
        "compare log-probabilities of grammatical and ungrammatical sentences",
    ),
    "analyze dyck": ("fairseq_casrnn.analysis.dyck", "measure how well a model closes brackets"),
    "rerank all": (
        "fairseq_casrnn.reranking.pipeline",
        "generate n-best lists, then score, tune and apply in one command",
    ),
    "rerank prepare": (
        "fairseq_casrnn.reranking.prepare",
        "prepare data for models that score the n-best lists of a translation corpus",
    ),
    "rerank score": (
        "fairseq_casrnn.reranking.score",
        "score the hypotheses of an n-best list with a model",
    ),
    "rerank tune": ("fairseq_casrnn.reranking.tune", "tune the weights of several scores for BLEU"),
    "rerank apply": (
        "fairseq_casrnn.reranking.apply",
        "pick the best hypotheses with tuned weights, and compute their BLEU",
    ),
    "data clusters": (
        "fairseq_casrnn.analysis.clusters",
        "assign tokens to the cells of a second-order LSTM by k-means on embeddings",
    ),
    "data dyck": (
        "fairseq_casrnn.data.corpora.dyck",
        "generate strings of brackets of bounded depth",
    ),
    "warm-up": (
        "fairseq_casrnn.console.warm_up",
        "compile the GPU kernels of a training in advance, with the arguments of fairseq-train",
    ),
    "results add": (
        "fairseq_casrnn.results.add",
        "add runs of this repository to results/PAGE.jsonl",
    ),
    "results render": (
        "fairseq_casrnn.results.render",
        "write the pages of docs/results from results/, or check that they are up to date",
    ),
}

WITH_MODELS = {
    *("train", "evaluate", "predict", "tag", "translate", "perplexity", "serve", "export"),
    *("pack", "average"),
    *(name for name in COMMANDS if name.startswith("analyze ")),
    *("rerank all", "rerank score", "data clusters"),
}
"""The commands that build models, which may be of a user's plugin."""

GROUPS = {
    "prepare": "prepare your own data for casrnn train",
    "analyze": "look inside a model: gates, routing, grammatical knowledge",
    "rerank": "rerank n-best lists of translations with other models",
    "data": "generate brackets, or cluster tokens for a second-order LSTM",
    "results": "keep the results in this repository",
}
"""What the commands of several words do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``casrnn`` with ``argv`` (default: the command line's) and return its exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["run"]:  # its options depend on the recipe
        from fairseq_casrnn.recipes.command import main as run_recipe

        return run_recipe(argv[1:])
    extra: list[str] = []
    if argv[:1] == ["train"]:
        argv, extra = split_at_dashes(argv)
    parser = _parser(argv)
    if not argv or (len(argv) == 1 and argv[0] in GROUPS):
        _print_help(parser, argv)
        return 2
    args, unknown = parser.parse_known_args(argv)
    if getattr(args, "takes_unknown", False):
        args.unknown = unknown
    elif unknown:
        where = "; options of fairseq-train go after --" if argv[0] == "train" else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{where}")
    if argv[0] == "train":
        args.extra = extra

    def run() -> None:
        with captured_log():  # fairseq and matplotlib log a lot
            folder = getattr(args, "user_dir", None)
            if folder is not None:
                use_plugin(folder)
            args.run(args)

    return run_main(run)


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """The parser for ``argv``, with all commands' names but only this command's options."""
    parser = Parser(
        prog="casrnn",
        description="Prepare data, then train, evaluate and use recurrent models. "
        "casrnn COMMAND --help shows a command's options.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    groups: dict[tuple[str, ...], Any] = {(): commands}
    for name, (_, text) in COMMANDS.items():
        *group, command = name.split()
        if tuple(group) not in groups:
            inner = commands.add_parser(*group, help=GROUPS[group[0]], description=GROUPS[group[0]])
            groups[tuple(group)] = inner.add_subparsers(metavar="WHAT", required=True)
        child = groups[tuple(group)].add_parser(command, help=text, description=text)
        if argv[: len(name.split())] == name.split():  # importing all commands takes seconds
            add_options(child, name)
    user_dir = commands.add_parser(
        "user-dir", help="print the folder to pass to fairseq's --user-dir"
    )
    user_dir.set_defaults(run=_user_dir)
    commands.add_parser("run", help="prepare, train or evaluate a recipe")
    text = "print the changes to fairseq, with reasons"
    commands.add_parser("patches", help=text, description=text).set_defaults(run=_patches)
    return parser


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options of the command ``name``, and its function as ``run``."""
    module = importlib.import_module(COMMANDS[name][0])
    module.add_arguments(parser)
    if name in WITH_MODELS:
        add_user_dir(parser)
    parser.set_defaults(run=module.run)


def _print_help(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """Print on standard error what ``argv --help`` prints."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
        parser.parse_args([*argv, "--help"])


def _user_dir(args: argparse.Namespace) -> None:
    print(Path(USER_DIR).resolve())


def _patches(args: argparse.Namespace) -> None:
    from fairseq_casrnn.patches.install import omitted_line, omitted_names
    from fairseq_casrnn.patches.patch import columns
    from fairseq_casrnn.patches.table import TABLE

    omitted = omitted_names()
    print(columns(TABLE, omitted))
    if omitted:
        print(f"\n{omitted_line(omitted)}")


if __name__ == "__main__":
    sys.exit(main())
