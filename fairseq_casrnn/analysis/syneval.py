"""Syntactic evaluation on minimal pairs (Marvin & Linzen 2018): ``casrnn analyze syneval``.

A model is correct on a pair if the grammatical sentence has a strictly greater log-probability. A
tie is incorrect and also counted separately: mostly it means that both sentences are the same after
unknown words have become ``<unk>``.

The file has tab-separated lines: construction, case, and two sentences, the grammatical one first.
For negative polarity items there are three sentences: grammatical, intrusive, ungrammatical.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.console.program import show
from fairseq_casrnn.data.dictionaries import check_known
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.sentence_scores import score
from fairseq_casrnn.files import check_writable, table_cell, whole_file

# The constructions of the file, animate and inanimate nouns taken together: 19 categories.
NAMES = {
    "simple_agrmt": "agreement: simple",
    "sent_comp": "agreement: in a sentential complement",
    "vp_coord": "agreement: short VP coordination",
    "long_vp_coord": "agreement: long VP coordination",
    "prep": "agreement: across a prepositional phrase",
    "subj_rel": "agreement: across a subject relative clause",
    "obj_rel_across": "agreement: across an object relative clause",
    "obj_rel_no_comp_across": "agreement: across an object relative clause, no that",
    "obj_rel_within": "agreement: in an object relative clause",
    "obj_rel_no_comp_within": "agreement: in an object relative clause, no that",
    "simple_reflexives": "reflexive: simple",
    "reflexive_sent_comp": "reflexive: in a sentential complement",
    "reflexives_across": "reflexive: across a relative clause",
    "simple_npi": "NPI: simple",
    "npi_across": "NPI: across a relative clause",
}
PAIRS_OF_THREE = (
    (0, 1, "grammatical vs. intrusive"),
    (1, 2, "intrusive vs. ungrammatical"),
    (0, 2, "grammatical vs. ungrammatical"),
)
ORDER = [
    category
    for name in NAMES.values()
    for category in (name, *(f"{name}, {what}" for _, _, what in PAIRS_OF_THREE))
]


@dataclass(frozen=True)
class Pair:
    """Two sentences, the better one first, and the category they belong to."""

    category: str
    better: str
    worse: str


@dataclass
class Accuracy:
    """Results of one category: numbers of pairs, of correct ones, and of ties (incorrect)."""

    pairs: int = 0
    right: int = 0
    ties: int = 0

    @property
    def share(self) -> float:
        """Share of correct pairs."""
        return self.right / self.pairs


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a TSV file, plain, ``.gz`` or ``.xz``; three sentences make three pairs.

    Raises:
        UserError: no such file, or a malformed line.
    """
    pairs = []
    for number, line in enumerate(read_lines(path, may_be_blank=True), 1):
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) not in (4, 5) or not all(columns):
            raise UserError(
                f"{path}, line {number} does not have four or five columns (construction, case and "
                "two or three sentences), separated by tabs; correct the line"
            )
        construction, _, *sentences = columns
        name = construction.removesuffix("_inanim").removesuffix("_anim")
        name = NAMES.get(name, name)
        if len(sentences) == 2:
            pairs.append(Pair(name, *sentences))
        else:
            pairs += [
                Pair(f"{name}, {what}", sentences[i], sentences[j]) for i, j, what in PAIRS_OF_THREE
            ]
    if not pairs:
        raise UserError(f"{path} is empty; give the file of minimal pairs")
    return pairs


def compare(pairs: Sequence[Pair], scores: dict[str, float]) -> dict[str, Accuracy]:
    """Accuracies by category: in the paper's order, then other categories as they first occur."""
    categories = {pair.category for pair in pairs}
    table = {name: Accuracy() for name in ORDER if name in categories}
    for pair in pairs:
        accuracy = table.setdefault(pair.category, Accuracy())
        better, worse = scores[pair.better], scores[pair.worse]
        accuracy.pairs += 1
        accuracy.right += better > worse
        accuracy.ties += better == worse
    return table


def table_lines(tables: dict[str, dict[str, Accuracy]]) -> list[str]:
    """A table with a line for each category: accuracy and ties of each model."""
    first = next(iter(tables.values()))
    width = max(len(name) for name in [*first, "category"])
    head = f"{'category':<{width}}  {'pairs':>6}"
    lines = [head + "".join(f"  {name:>10}  {'ties':>5}" for name in tables)]
    total = {name: Accuracy() for name in tables}
    for category, accuracy in first.items():
        line = f"{category:<{width}}  {accuracy.pairs:>6}"
        for name, table in tables.items():
            result = table[category]
            line += f"  {result.share:>10.3f}  {result.ties:>5}"
            total[name].pairs += result.pairs
            total[name].right += result.right
            total[name].ties += result.ties
        lines.append(line)
    pairs = next(iter(total.values())).pairs
    end = "".join(f"  {one.share:>10.3f}  {one.ties:>5}" for one in total.values())
    return [*lines, f"{'all':<{width}}  {pairs:>6}{end}"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn analyze syneval``."""
    parser.add_argument("pairs", type=Path, help="EMNLP2018_templates.tsv, also .gz or .xz")
    parser.add_argument("--data", required=True, type=Path, help="folder with dict.txt")
    parser.add_argument("--path", required=True, type=Path, help="checkpoint")
    parser.add_argument("--baseline", type=Path, help="checkpoint of a model to compare it with")
    parser.add_argument(
        "--without-end", action="store_true", help="do not score the end of the sentence, </s>"
    )
    parser.add_argument("--csv", type=Path, help="output file for the table")


def run(args: argparse.Namespace) -> None:
    """Print the table and write the file. Raises UserError."""
    from fairseq_casrnn.inference.loading import load_language_model

    check_writable(args.csv)
    pairs = read_pairs(args.pairs)
    sentences = {sentence for pair in pairs for sentence in (pair.better, pair.worse)}
    tables = {}
    for name, path in (("baseline", args.baseline), ("model", args.path)):
        if path is not None:
            model, task = load_language_model(path, args.data)
            check_known(sentences, task.source_dictionary, args.data)
            scores = score(model, task.source_dictionary, sorted(sentences), not args.without_end)
            tables[name] = compare(pairs, scores)
    if args.csv is not None:
        write_csv(args.csv, tables)
    show(table_lines(tables))


def write_csv(path: Path, tables: dict[str, dict[str, Accuracy]]) -> None:
    """Columns model, category (:func:`.table_cell`), pairs, right, ties. Raises UserError."""
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "category", "pairs", "right", "ties"))
        for name, table in tables.items():
            for category, result in table.items():
                cells = (table_cell(category), result.pairs, result.right, result.ties)
                writer.writerow((name, *cells))
