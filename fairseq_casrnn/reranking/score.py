"""``casrnn rerank score``: scores every hypothesis of an n-best list with a model.

A score is the mean log2-probability of a token, including ``</s>``, as ``fairseq-generate
--score-reference`` prints it.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fairseq_casrnn.data.batches import split_batches
from fairseq_casrnn.data.dictionaries import check_known
from fairseq_casrnn.data.prepared import binarised_folder
from fairseq_casrnn.data.symbols import escape_line
from fairseq_casrnn.data.text import decode_lines, read_bytes
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable
from fairseq_casrnn.inference.loading import checkpoint_file
from fairseq_casrnn.reranking.nbest import (
    NBest,
    header_line,
    join_subwords,
    read_nbest,
    reverse,
)

CHUNK = 2000  # hypotheses whose scores are written together
BATCH_TOKENS = 4000
UNKNOWN_WORDS_HINT = ", or whether --backwards or --join-subwords is missing"

#: (score, tokens) of each (source, hypothesis).
Scorer = Callable[[Sequence[tuple[str, str]]], list[tuple[float, int]]]


def model_inputs(nbest: NBest, args: argparse.Namespace) -> list[tuple[str, str]]:
    """(source, target) of a model for each hypothesis, for the options of the command."""
    texts = [text for texts in nbest.hypotheses for text in texts]
    pairs = [("", text) for text in texts] if args.lm else nbest.pairs()
    if args.join_subwords:
        pairs = [(join_subwords(source), join_subwords(text)) for source, text in pairs]
    if args.backwards:
        pairs = [(text, source) for source, text in pairs]
    if args.right_to_left:
        pairs = [(source, reverse(text)) for source, text in pairs]
    return pairs


def translation_scorer(paths: Sequence[str], data: Path, pairs: Sequence[tuple[str, str]]):
    """A scorer with a translation model, or the averaged probabilities of several.

    Raises:
        UserError: a checkpoint that is missing, broken or not of a translation model, or that has
            another dictionary than ``data`` or ``pairs``.
    """
    import torch
    from fairseq.models import FairseqEncoderDecoderModel
    from fairseq.sequence_scorer import SequenceScorer

    models, task = load_translation(paths, data)
    for path, model in zip(paths, models, strict=True):
        if not isinstance(model, FairseqEncoderDecoderModel):
            raise UserError(
                f"checkpoint {path} is of {type(model).__name__}, not a translation model; "
                "give --lm with a language model"
            )
    check_known([source for source, _ in pairs], task.source_dictionary, data, UNKNOWN_WORDS_HINT)
    check_known([target for _, target in pairs], task.target_dictionary, data, UNKNOWN_WORDS_HINT)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    models = [model.eval().to(device) for model in models]
    scorer = SequenceScorer(task.target_dictionary)

    def score(part: Sequence[tuple[str, str]]) -> list[tuple[float, int]]:
        dataset = as_dataset(part, task)
        found: list[tuple[float, int]] = [(0.0, 0)] * len(part)
        for sample in batches(dataset, device):
            for index, (best, *_) in zip(
                sample["id"].tolist(), scorer.generate(models, sample), strict=True
            ):
                found[index] = float(best["score"]) / math.log(2), len(best["tokens"])
        return found

    return score


def load_translation(paths: Sequence[str], data: Path):
    """Load models and their task. Raises UserError."""
    from fairseq import checkpoint_utils

    import fairseq_casrnn
    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.models.hub import check_weights_finite

    fairseq_casrnn.register()
    with explained():
        models, _, task = checkpoint_utils.load_model_ensemble_and_task(
            list(paths), arg_overrides={"data": str(data)}
        )
    for path, model in zip(paths, models, strict=True):
        check_weights_finite(model, path)
    return models, task


def as_dataset(pairs: Sequence[tuple[str, str]], task):
    """A LanguagePairDataset with the padding of the model's training."""
    from fairseq.data import LanguagePairDataset

    sides = []
    for side, dictionary in enumerate((task.source_dictionary, task.target_dictionary)):
        tokens = [
            dictionary.encode_line(escape_line(pair[side]), add_if_not_exist=False).long()
            for pair in pairs
        ]
        sides += [tokens, [len(line) for line in tokens], dictionary]
    return LanguagePairDataset(
        *sides,
        left_pad_source=getattr(task.cfg, "left_pad_source", True),
        left_pad_target=getattr(task.cfg, "left_pad_target", False),
        shuffle=False,
    )


def batches(dataset, device: str):
    """Batches of similar lengths with at most BATCH_TOKENS tokens including padding."""
    from fairseq import utils

    order = np.lexsort((dataset.tgt_sizes, dataset.src_sizes))
    for indices in split_batches(order.tolist(), dataset.sizes.max(1)[order], BATCH_TOKENS):
        batch = dataset.collater([dataset[i] for i in indices])
        yield utils.move_to_cuda(batch) if device == "cuda" else batch


def language_model_scorer(path: str, data: Path, pairs: Sequence[tuple[str, str]]) -> Scorer:
    """A scorer with a language model. Raises UserError as :func:`translation_scorer`."""
    from fairseq_casrnn.evaluation import sentence_scores
    from fairseq_casrnn.inference.loading import load_language_model

    model, task = load_language_model(path, data)
    check_known([text for _, text in pairs], task.source_dictionary, data, UNKNOWN_WORDS_HINT)

    def score(part: Sequence[tuple[str, str]]) -> list[tuple[float, int]]:
        texts = [text for _, text in part]
        found = sentence_scores.score(model, task.source_dictionary, sorted(set(texts)))
        lengths = [len(text.split()) + 1 for text in texts]
        return [
            (found[text] / length / math.log(2), length)
            for text, length in zip(texts, lengths, strict=True)
        ]

    return score


# --- the command -------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn rerank score``."""
    parser.add_argument("nbest", type=Path, help="output of fairseq-generate --nbest N")
    parser.add_argument(
        "--data", required=True, type=binarised_folder, help="folder with the dictionaries"
    )
    parser.add_argument(
        "--path",
        required=True,
        help="checkpoint or its folder; also several of translation models, A:B",
    )
    parser.add_argument("--lm", action="store_true", help="the model is a language model")
    parser.add_argument(
        "--right-to-left",
        action="store_true",
        help="the model was trained on reversed target text",
    )
    parser.add_argument(
        "--backwards", action="store_true", help="the model translates from target to source"
    )
    parser.add_argument(
        "--join-subwords",
        action="store_true",
        help="the model was trained on words, not on the list's BPE units",
    )
    parser.add_argument("--output", required=True, type=Path, help="output file for the scores")


def run(args: argparse.Namespace) -> None:
    """Write the scores, or resume an interrupted call. Raises UserError."""
    if args.lm and args.backwards:
        raise UserError("--backwards is for translation models; drop it or --lm")
    check_writable(args.output)
    nbest = read_nbest(args.nbest)
    given = [args.path] if args.lm else args.path.split(":")
    paths = [str(checkpoint_file(Path(path))) for path in given]
    header = describe(args, nbest, paths)
    if is_complete(args.output, header, sum(map(len, nbest.hypotheses))):
        print(f"{args.output} has these scores already")
        return
    pairs = model_inputs(nbest, args)
    if args.lm:
        scorer = language_model_scorer(paths[0], args.data, pairs)
    else:
        scorer = translation_scorer(paths, args.data, pairs)
    try:
        write(args.output, header_line(header), pairs, scorer)
    except OSError as error:
        raise UserError(f"cannot write {args.output}: {error.strerror}") from error
    print(f"scored {len(pairs)} hypotheses of {len(nbest.hypotheses)} sentences")


def describe(args: argparse.Namespace, nbest: NBest, paths: Sequence[str]) -> dict[str, object]:
    """The header: all that the scores depend on."""
    state = []
    for path in paths:
        stat = os.stat(path)
        state.append([stat.st_size, stat.st_mtime_ns])
    options = ("lm", "right_to_left", "backwards", "join_subwords")
    kind = [name for name in options if getattr(args, name)]
    return {
        "model": " ".join([":".join(paths), *kind]),
        "nbest": nbest.digest,
        "checkpoint": state,
        "data": str(args.data),
    }


def is_complete(path: Path, header: dict[str, object], count: int) -> bool:
    """Whether ``path`` has ``count`` scores with this header."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        first, rest = file.readline(), sum(1 for _ in file)
    return first == f"{header_line(header)}\n".encode() and rest == count


def write(path: Path, header: str, pairs: Sequence[tuple[str, str]], scorer: Scorer) -> None:
    """Score in chunks into a draft, which is renamed at the end; resume an existing draft."""
    draft = path.with_name(f"{path.name}.part")
    lines = [header]
    if draft.is_symlink():
        draft.unlink()  # do not write to its target
    if draft.is_file():
        content = read_bytes(draft)
        complete = content[: content.rfind(b"\n") + 1]  # the last line may be truncated
        found = decode_lines(complete, draft)
        if found[:1] == lines:
            lines += found[1 : 1 + (len(found) - 1) // CHUNK * CHUNK]  # whole chunks only
    with open(draft, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        for start in range(len(lines) - 1, len(pairs), CHUNK):
            rows = scorer(pairs[start : start + CHUNK])
            file.writelines(f"{score:.6f}\t{tokens}\n" for score, tokens in rows)
            file.flush()
    os.replace(draft, path)
