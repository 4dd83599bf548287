"""Tatoeba Chinese–English: ``python -m fairseq_casrnn.data.corpora.tatoeba``.

Reads the tab-separated export of https://www.manythings.org/anki/ (``cmn.txt``) with the columns
English, Chinese and, optionally, credit. Chinese is split into characters, English into Moses
tokens, both in lower case.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import regex

from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.data.readers import add_split_seed
from fairseq_casrnn.data.text import Pair, is_clean, read_lines, tokenize_lines
from fairseq_casrnn.data.translation import ParallelCorpus, command
from fairseq_casrnn.data.words import chinese_characters
from fairseq_casrnn.errors import UserError

SOURCE, TARGET = "zh", "en"


def read_pairs(path: Path) -> list[Pair]:
    """(Chinese, English) raw pairs of a tab-separated file, English in the first column.

    Raises:
        UserError: a line does not have two filled columns, or the second one is not Chinese.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) < 2 or not columns[0] or not columns[1]:
            raise UserError(
                f"{path}, line {number} is not English<TAB>Chinese; "
                "give the tab-separated file of the Chinese-English pairs"
            )
        pairs.append((columns[1], columns[0]))
    if not any(regex.search(r"\p{Han}", chinese) for chinese, _ in pairs):
        raise UserError(f"{path} has no Chinese in its second column; give English<TAB>Chinese")
    return pairs


def split_by_source(
    keys: list[str], eval_size: int, seed: int
) -> tuple[list[int], list[int], list[int], int]:
    """Split pairs so that equal source sentences are in the same split.

    Args:
        keys: the source sentence of each pair.
        eval_size: number of distinct sources in valid and in test.
        seed: seed of the shuffle.

    Returns:
        Positions of the pairs of train, valid and test, in ascending order, and the number of pairs
        left out: valid and test only have the first pair of each source.

    Raises:
        UserError: too few distinct sources.
    """
    groups: dict[str, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    if eval_size < 1 or len(groups) < 2 * eval_size + 1:
        raise UserError(
            f"{len(groups)} distinct source sentences cannot give {eval_size} each for validation "
            "and test and leave some for training; choose another --eval-size"
        )
    order = list(groups)
    random.Random(seed).shuffle(order)
    valid = sorted(groups[key][0] for key in order[:eval_size])
    test = sorted(groups[key][0] for key in order[eval_size : 2 * eval_size])
    train = sorted(position for key in order[2 * eval_size :] for position in groups[key])
    return train, valid, test, len(keys) - len(train) - len(valid) - len(test)


def read_corpus(path: Path, eval_size: int, seed: int, workers: int = 1) -> ParallelCorpus:
    """Read and tokenise the pairs, drop empty or very long ones and split by source sentence."""
    raw = read_pairs(path)
    print(f"tokenising {len(raw)} pairs", flush=True)
    english = tokenize_lines([target for _, target in raw], TARGET, workers=workers)
    pairs = [
        (chinese_characters(chinese), target)
        for (chinese, _), target in zip(raw, english, strict=True)
    ]
    kept = [i for i, pair in enumerate(pairs) if is_clean(*pair, ratio=None)]
    *parts, left_out = split_by_source([pairs[i][0] for i in kept], eval_size, seed)
    splits = {
        name: [pairs[kept[i]] for i in part] for name, part in zip(SPLITS, parts, strict=True)
    }
    raw_test = [raw[kept[i]] for i in parts[2]]
    notes: dict[str, object] = {
        "pairs": len(raw),
        "pairs dropped": len(raw) - len(kept),
        "further translations of evaluation sources left out": left_out,
        "split seed": seed,
    }
    return ParallelCorpus(SOURCE, TARGET, splits, raw_test, notes)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument(
        "--raw", required=True, type=Path, help="text file of lines English<TAB>Chinese"
    )
    parser.add_argument(
        "--eval-size",
        type=int,
        default=1000,
        help="number of sentences in each of valid and test (default: 1000)",
    )
    add_split_seed(parser, "the split")
    parser.add_argument(
        "--min-count",
        type=int,
        default=2,
        help="training tokens that occur less often become <unk> (default: 2)",
    )
    parser.set_defaults(tokenizer="chinese")  # kept with the data, for casrnn translate


main = command(
    "Split Tatoeba zh-en into Chinese characters and English words, split the data by source "
    "sentence, and binarise it.",
    lambda args: read_corpus(args.raw, args.eval_size, args.split_seed, args.workers),
    options,
    bpe_operations=0,
)


if __name__ == "__main__":
    sys.exit(main())
