"""A corpus as parallel streams, read in pieces, so that a state can be carried between batches.

N tokens are divided into S streams of consecutive tokens, one per batch row of all workers. Their
lengths differ by at most one. Every token of a stream except the first is predicted once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset, MonolingualDataset, TokenBlockDataset, data_utils
from torch import Tensor

from fairseq_casrnn.errors import UserError

SHORTEST_PIECE = 5  # minimum of jittered lengths


class Piece(NamedTuple):
    """Inputs ``start`` to ``stop - 1`` of one stream; an index of the data set."""

    stream: int
    start: int
    stop: int


class StreamDataset(FairseqDataset):
    """A text, divided into streams.

    Its indices are of type :class:`Piece`, so one data set serves all epochs. It has one stream
    until :meth:`cut` divides it.

    Args:
        tokens: ``(N,)``, the whole text.
        pad: index of the padding symbol.
    """

    def __init__(self, tokens: Tensor, pad: int):
        self.tokens, self.pad = tokens, pad
        self.bounds = np.array([0, len(tokens)])

    def cut(
        self, streams: int, name: str = "the data", option: str = "--batch-size"
    ) -> StreamDataset:
        """The text divided into streams; the first ones may be one token longer.

        Args:
            streams: number of streams.
            name: name of the data, for messages.
            option: the option that sets the number of streams, for messages.

        Raises:
            UserError: there are fewer than two tokens per stream.
        """
        total = len(self.tokens)
        if total < 2 * streams:
            raise UserError(
                f"{name} has {total} tokens, too few for {streams} streams of at least two tokens; "
                f"lower {option}"
            )
        bounds = np.arange(streams + 1) * (total // streams)
        bounds += np.minimum(np.arange(streams + 1), total % streams)
        result = StreamDataset(self.tokens, self.pad)
        result.bounds = bounds
        return result

    @property
    def sizes(self) -> np.ndarray:
        """The number of predicted tokens of each stream."""
        return np.diff(self.bounds) - 1

    def __len__(self):
        return len(self.bounds) - 1

    def size(self, index):
        """The number of predicted tokens of stream ``index``."""
        return int(self.sizes[index])

    num_tokens = size

    def __getitem__(self, piece: Piece):
        stream, start, stop = piece
        first, end = int(self.bounds[stream]), int(self.bounds[stream + 1])
        text = self.tokens[first + start : min(first + stop + 1, end)].long()
        return {"id": stream, "start": start, "stop": stop, "source": text[:-1], "target": text[1:]}

    def collater(self, samples):
        """Make a batch of one piece from each of several streams, padded on the right.

        ``start`` and ``stop`` are the position of the piece; ``stop`` may be beyond the end of a
        stream.
        """
        if not samples:
            return {}
        source, target = (
            data_utils.collate_tokens([one[side] for one in samples], self.pad, pad_to_length=1)
            for side in ("source", "target")
        )
        lengths = torch.tensor([len(sample["target"]) for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": source, "src_lengths": lengths},
            "target": target,
            "start": samples[0]["start"],
            "stop": samples[0]["stop"],
        }

    def batches(self, workers: int, lengths: list[int]) -> list[list[Piece]]:
        """The batches of all workers, as lists of pieces.

        Batch i is for worker i mod ``workers``, as in fairseq; each worker keeps its streams.
        """
        rows = len(self) // workers
        batches, start = [], 0
        for length in lengths:
            for worker in range(workers):
                streams = range(worker * rows, (worker + 1) * rows)
                batches.append([Piece(stream, start, start + length) for stream in streams])
            start += length
        return batches


def piece_lengths(steps: int, bptt: int, jitter: float, seed: tuple[int, int]) -> list[int]:
    """Lengths of the pieces of a stream; their sum is ``steps``.

    Args:
        steps: number of predicted tokens of the longest stream.
        bptt: mean length.
        jitter: standard deviation; 0 for pieces of length ``bptt``. Otherwise the mean is halved
            for one piece in twenty (Merity et al. 2018, §5).
        seed: the run's seed and the epoch.
    """
    lengths, rng = [], np.random.default_rng(seed)
    left = steps
    while left:
        length = bptt
        if jitter:
            mean = bptt if rng.random() < 0.95 else bptt / 2
            length = max(min(SHORTEST_PIECE, bptt), round(rng.normal(mean, jitter)))
        lengths.append(min(length, left))
        left -= lengths[-1]
    return lengths


def whole_text(dataset) -> Tensor:
    """All sentences of an indexed data set, concatenated, ``(N,)``, int32."""
    return torch.from_numpy(np.concatenate([np.asarray(s, np.int32) for s in dataset]))


def sentence_dataset(sentences, dictionary, output_dictionary) -> MonolingualDataset:
    """A data set of single sentences: </s> w₁ … wₙ predicts w₁ … wₙ </s>."""
    pad, eos = dictionary.pad(), dictionary.eos()
    blocks = TokenBlockDataset(
        sentences, sentences.sizes, None, pad, eos, break_mode="eos", include_targets=True
    )
    vocabulary = (dictionary, output_dictionary)
    return MonolingualDataset(blocks, blocks.sizes, *vocabulary, shuffle=True, targets=["future"])
