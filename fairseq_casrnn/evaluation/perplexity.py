"""Perplexity of a language model, over a continuous text or sentence by sentence."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable, whole_file
from fairseq_casrnn.progress import shown

BATCH_TOKENS = 2048  # of one batch; its probabilities take BATCH_TOKENS * V * 4 bytes


@dataclass
class Scores:
    """Log-probabilities of a text.

    Args:
        log_probs: ``(N,)`` natural logarithms by token of the text; NaN where none is predicted.
        lengths: tokens of each sentence, line end included; they sum to N.
    """

    log_probs: np.ndarray
    lengths: np.ndarray

    @property
    def tokens(self) -> int:
        """Tokens that were predicted."""
        return int(np.count_nonzero(~np.isnan(self.log_probs)))

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood of a token, in nats."""
        return -float(np.nansum(self.log_probs)) / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite where that is more than a float can be."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    def sentences(self) -> np.ndarray:
        """Log-probability of each sentence; of the first of a stream without its first token."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(np.nan_to_num(self.log_probs), starts)

    def predicted(self) -> np.ndarray:
        """Predicted tokens of each sentence."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(~np.isnan(self.log_probs), starts, dtype=np.int64)

    def __str__(self):
        return (
            f"tokens {self.tokens}, loss {self.loss:.4f} nats ({self.loss / math.log(2):.4f} bits),"
            f" perplexity {self.perplexity:.2f}"
        )


@dataclass
class Text:
    """A continuous text as a language model reads it.

    Args:
        scores: of its N words.
        words: tensor ``(N,)``.
        bounds: ``(S + 1,)``, where its S streams begin, and the end; the first word of each is not
            predicted.
        features: tensor ``(N, E)``, what the decoder predicts each word from, zero for those first
            ones.
    """

    scores: Scores
    words: object
    bounds: np.ndarray
    features: object


def load(path: str | os.PathLike, data: str | os.PathLike):
    """A language model in ``eval()`` and its task, from a checkpoint.

    Args:
        path: the checkpoint, or a training's folder: its best, or else its last one.
        data: folder with its ``dict.txt``.

    Raises:
        UserError: it is no checkpoint, not of a language model, or of another dictionary.
    """
    import torch
    from fairseq import checkpoint_utils

    import fairseq_casrnn
    from fairseq_casrnn.data.dictionaries import check_digest
    from fairseq_casrnn.diagnostics.explain import explained

    fairseq_casrnn.register()
    path = checkpoint_file(Path(path))
    if not (Path(data) / "dict.txt").is_file():
        raise UserError(f"{data} holds no dict.txt; give the folder that fairseq-preprocess wrote")
    overrides = {"data": str(data)}
    with explained():
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)
        check_kind(state["cfg"].model, path)
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], arg_overrides=overrides, state=state
        )
        check_digest(state["extra_state"].get("words"), task.source_dictionary, data)
    check_finite(model, path)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu"), task


def checkpoint_file(path: Path) -> Path:
    """The checkpoint ``path``, or that of the training whose folder it is. Raises UserError."""
    from fairseq_casrnn.models.hub import find_checkpoint

    if not path.exists():
        raise UserError(f"checkpoint {path} does not exist; check the path")
    return find_checkpoint(path, None)


def check_finite(model, path: str | os.PathLike) -> None:
    """Raise UserError where weights of ``model``, of the checkpoint ``path``, are no numbers."""
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not weight.isfinite().all():
            raise UserError(
                f"checkpoint {path} has weights in {name} that are not finite (NaN or infinite): "
                "its training diverged, or it is damaged; use another checkpoint"
            )


def check_kind(cfg, path: str | os.PathLike) -> None:
    """Raise UserError unless ``cfg``, of a checkpoint's model, is of a language model."""
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqLanguageModel

    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    model = ARCH_MODEL_REGISTRY.get(name)
    if model is not None and not issubclass(model, FairseqLanguageModel):
        raise UserError(f"checkpoint {path} is of {name}, not a language model")


def route_softly(model, path: str | os.PathLike) -> None:
    """Mix the cells of ``model`` in evaluation, too.

    Raises:
        UserError: it has no cells that are mixed by attention.
    """
    from fairseq_casrnn.layers import SecondOrderLSTM

    stacks = [m for m in model.modules() if isinstance(m, SecondOrderLSTM)]
    if not any(stack.routing == "attention" for stack in stacks):
        raise UserError(
            f"--soft-routing is for a second-order LSTM with attention, which {path} is not; "
            "drop the option"
        )
    for stack in stacks:
        stack.soft_routing = True


def reads_bos(model) -> bool:
    """Whether a language model reads <s> before each text, as trained with --add-bos-token."""
    return getattr(model, "reads_bos", False)


def read_sentences(
    data: str | os.PathLike, subset: str, dictionary, remedy: str = "check the folder and --subset"
) -> list:
    """The sentences of a binarised split, each a tensor that ends with ``</s>``.

    Raises:
        UserError: there is no such split; it ends with ``remedy``.
    """
    from fairseq.data import data_utils

    sentences = data_utils.load_indexed_dataset(str(Path(data) / subset), dictionary)
    if sentences is None:
        raise UserError(f"there is no '{subset}' in {data}; {remedy}")
    return [sentence.long().clone() for sentence in sentences]  # not a view of the file


def log_probs(model, source, target):
    """Log-probabilities ``(B, T)`` of ``target`` after ``source``, ``(B, T)`` each.

    Raises:
        UserError: NaN among them.
    """
    import torch

    device = next(model.parameters()).device
    with torch.no_grad():
        return of_targets(model, model(source.to(device)), target.to(device))


def of_targets(model, output, target):
    """Log-probabilities ``(B, T)`` of ``target`` in a model's ``output``. Raises UserError."""
    table = model.get_normalized_probs(output, log_probs=True, sample={"target": target})
    found = table.gather(-1, target.unsqueeze(-1)).squeeze(-1).double().cpu()
    if found.isnan().any():
        raise UserError("the model gives probabilities that are no numbers (NaN); use another")
    return found


def score_streams(model, dictionary, sentences: Sequence, streams: int = 1) -> Scores:
    """Scores of one continuous text, cut into ``streams`` whose first token is not predicted.

    Raises:
        UserError: fewer than two tokens a stream; a model that carries no state.
    """
    return read_streams(model, dictionary, sentences, streams, False).scores


def read_streams(
    model, dictionary, sentences: Sequence, streams: int = 1, keep: bool = True
) -> Text:
    """As :func:`score_streams`, and where ``keep`` with all features, ``N * E * 4`` bytes."""
    import torch

    from fairseq_casrnn.data.streams import StreamDataset, piece_lengths
    from fairseq_casrnn.models.language_model import Carried, check_carries

    check_carries(model)
    text = StreamDataset(torch.cat(list(sentences)), dictionary.pad())
    text = text.cut(streams, option="--streams")
    scores, kept = np.full(len(text.tokens), np.nan), None
    steps = piece_lengths(int(text.sizes.max()), max(1, BATCH_TOKENS // streams), 0.0, (0, 0))
    carried, decoder, device = Carried(), model.decoder, next(model.parameters()).device
    if reads_bos(model):
        with torch.no_grad():
            first = torch.full((streams, 1), dictionary.bos(), device=device)
            decoder.extract_features(first, carried=carried)
    for pieces in shown(text.batches(1, steps), len(steps), "steps"):
        batch = text.collater([text[piece] for piece in pieces])
        target = batch["target"].to(device)
        with torch.no_grad():
            source = batch["net_input"]["src_tokens"].to(device)
            features, extra = decoder.extract_features(source, carried=carried)
            found = of_targets(model, (decoder.output_layer(features), extra), target)
        if keep and kept is None:
            kept = features.new_zeros(len(text.tokens), features.size(-1))
        for row, (stream, start, _) in enumerate(pieces):
            length = int(batch["net_input"]["src_lengths"][row])
            first = int(text.bounds[stream]) + start + 1
            scores[first : first + length] = found[row, :length].numpy()
            if keep:
                kept[first : first + length] = features[row, :length]
    lengths = np.array([len(sentence) for sentence in sentences])
    return Text(Scores(scores, lengths), text.tokens.long(), text.bounds, kept)


def sentence_batches(lengths: np.ndarray, most: int = BATCH_TOKENS) -> Iterator[np.ndarray]:
    """Indices of sentences of similar length, at most ``most`` tokens with padding."""
    order, start = np.argsort(lengths, kind="stable"), 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and lengths[order[stop]] * (stop + 1 - start) <= most:
            stop += 1
        yield order[start:stop]
        start = stop


def padded(sentences: Iterable, dictionary, bos: bool = False):
    """Inputs </s> w₁ … wₙ and targets w₁ … wₙ </s>, ``(B, T)`` each, padded on the right.

    With ``bos``, ``(B, 1+T)``: <s> before the inputs, and padding before the targets.
    """
    from torch.nn.functional import pad
    from torch.nn.utils.rnn import pad_sequence

    target = pad_sequence(list(sentences), batch_first=True, padding_value=dictionary.pad())
    source = target.roll(1, 1)
    source[:, 0] = dictionary.eos()
    if bos:
        source = pad(source, (1, 0), value=dictionary.bos())
        target = pad(target, (1, 0), value=dictionary.pad())
    return source, target


def score_sentences(model, dictionary, sentences: Sequence) -> Scores:
    """Scores of sentences, each by itself after ``</s>``; every token is predicted."""
    lengths = np.array([len(sentence) for sentence in sentences])
    starts = np.cumsum(lengths) - lengths
    scores = np.full(int(lengths.sum()), np.nan)
    batches, bos = list(sentence_batches(lengths)), reads_bos(model)
    for batch in shown(batches, len(batches), "batches"):
        found = log_probs(model, *padded([sentences[i] for i in batch], dictionary, bos))
        found = found[:, int(bos) :]
        for i, row in zip(batch, found, strict=True):
            scores[starts[i] : starts[i] + lengths[i]] = row[: lengths[i]].numpy()
    return Scores(scores, lengths)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn perplexity``."""
    parser.add_argument("data", type=Path, help="folder that fairseq-preprocess wrote")
    parser.add_argument("--path", required=True, type=Path, help="checkpoint")
    parser.add_argument("--subset", default="test", help="split to score (default: test)")
    parser.add_argument(
        "--sentence-reset", action="store_true", help="each sentence by itself, after </s>"
    )
    parser.add_argument(
        "--streams", type=int, default=1, help="cut the text into that many (default: 1)"
    )
    parser.add_argument(
        "--soft-routing",
        action="store_true",
        help="mix a second-order LSTM's cells as in training, at the temperature it ended with",
    )
    parser.add_argument(
        "--cache",
        type=int,
        metavar="N",
        help="mix in what a cache of the last N words predicts, after Grave et al. (2017)",
    )
    for name, meaning in (("weight", "part in the prediction"), ("flatness", "factor of likeness")):
        parser.add_argument(
            f"--cache-{name}",
            type=float,
            metavar="X",
            help=f"the cache's {meaning} (default: the best for the split 'valid')",
        )
    parser.add_argument(
        "--scores",
        type=Path,
        metavar="FILE",
        help="write each sentence's tokens and log-probability",
    )


def run(args: argparse.Namespace) -> None:
    """Print tokens, loss and perplexity. Raises UserError."""
    check_options(args)
    check_writable(args.scores)
    model, task = load(args.path, args.data)
    if args.soft_routing:
        route_softly(model, args.path)
    dictionary = task.source_dictionary
    sentences = read_sentences(args.data, args.subset, dictionary)
    if args.sentence_reset:
        scores = score_sentences(model, dictionary, sentences)
    elif args.cache is not None:
        scores = score_with_cache(args, model, dictionary, sentences)
    else:
        scores = score_streams(model, dictionary, sentences, args.streams)
    if args.scores is not None:
        write_scores(args.scores, scores)
    print(scores)


def check_options(args: argparse.Namespace) -> None:
    """Raise UserError for options that contradict each other or are out of range."""
    from fairseq_casrnn.evaluation import cache

    if args.streams < 1:
        raise UserError(f"--streams is {args.streams}; it must be at least 1")
    if args.sentence_reset and args.streams > 1:
        raise UserError("--streams is for a continuous text; drop it or --sentence-reset")
    settings = (args.cache_weight, args.cache_flatness)
    if args.cache is None:
        if settings != (None, None):
            raise UserError("--cache-weight and --cache-flatness are for --cache N; give that, too")
        return
    if args.sentence_reset:
        raise UserError("--cache is for a continuous text; drop it or --sentence-reset")
    cache.check_size(args.cache)
    if None not in settings:
        cache.Cache(args.cache, *settings)
    elif settings != (None, None):
        raise UserError("--cache-weight and --cache-flatness belong together; give both or neither")


def score_with_cache(args: argparse.Namespace, model, dictionary, sentences: Sequence) -> Scores:
    """Scores with the cache of ``args``; where it is chosen on validation, says which."""
    from fairseq_casrnn.evaluation.cache import Cache, tune, with_cache

    if args.cache_weight is not None:
        cache = Cache(args.cache, args.cache_weight, args.cache_flatness)
        return with_cache(read_streams(model, dictionary, sentences, args.streams), cache)
    valid = sentences
    if args.subset != "valid":
        remedy = "give --cache-weight and --cache-flatness, which are chosen there"
        valid = read_sentences(args.data, "valid", dictionary, remedy)
    text = read_streams(model, dictionary, valid, args.streams)
    cache = tune(text, args.cache)
    before, scores = text.scores.perplexity, with_cache(text, cache)
    print(
        f"cache of {cache}: best on valid, perplexity {scores.perplexity:.2f}, without {before:.2f}"
    )
    if args.subset == "valid":
        return scores
    del text  # its features
    return with_cache(read_streams(model, dictionary, sentences, args.streams), cache)


def write_scores(path: Path, scores: Scores) -> None:
    """A line "tokens<TAB>log-probability" for each sentence; the file is written whole or not.

    Of the first sentence of a stream the first token, which is not predicted, does not count.
    """
    with whole_file(path) as file:
        for count, score in zip(scores.predicted(), scores.sentences(), strict=True):
            file.write(f"{count}\t{score:.6f}\n")
