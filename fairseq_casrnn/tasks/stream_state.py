"""The state of a language model in its token streams, between batches and in a checkpoint.

A state is a list of tensors ``(L, B, H)``, with the streams in dimension 1. Worker ``w`` of ``W``
reads streams ``w·B/W`` to ``(w+1)·B/W - 1``.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import CountingIterator
from fairseq.distributed import utils as distributed

from ..errors import UserError
from ..layers.state import State, map_state
from ..models.language_decoder import CarriedState

logger = logging.getLogger(__name__)


@dataclass
class StreamPosition:
    """The last batch read from the streams of one data set, and the states around it.

    Attributes:
        start, stop: time steps of the streams before and after the last batch.
        before, after: the state at ``start`` and at ``stop``, as :class:`CarriedState` holds it;
            None for zeros.
    """

    start: int = 0
    stop: int = 0
    before: State | None = None
    after: State | None = None

    def state_at(self, start: int, device: torch.device) -> State | None:
        """The state of a batch that begins at step ``start``; None for zeros.

        A batch may be repeated, for instance after an overflow in half precision.
        """
        if start == 0:
            return None
        for position, state in ((self.stop, self.after), (self.start, self.before)):
            if position == start and state is not None:
                return map_state(lambda part: part.to(device), state)
        logger.warning("no state is known for step %d of the text; starting from zeros", start)
        return None


class StatefulBatches:
    """Batches of streams that carry the state from each to the next without the task's help."""

    def __init__(self, batches: CountingIterator):
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        carried = CarriedState()
        for sample in self.batches:
            yield with_carried_state(sample, carried)


def with_carried_state(sample: dict[str, Any], carried: CarriedState) -> dict[str, Any]:
    """``sample`` with ``carried`` as input of the model, which reads and updates it."""
    return {**sample, "net_input": {**sample["net_input"], "carried": carried}}


def gather_streams(parts: list[torch.Tensor], workers: int) -> list[torch.Tensor]:
    """The state of all workers' streams, on the CPU. A collective call: each worker must make it.

    Args:
        parts: the state of this worker's streams.
        workers: number of workers.
    """
    if workers > 1:
        group = distributed.get_data_parallel_group()
        parts = [torch.cat(distributed.all_gather(part.contiguous(), group), 1) for part in parts]
    return [part.cpu() for part in parts]


def streams_of_worker(parts: list[torch.Tensor], worker: int, workers: int) -> list[torch.Tensor]:
    """The state of one worker's streams, from the state of all."""
    rows = parts[0].size(1) // workers
    return [part[:, rows * worker : rows * (worker + 1)].contiguous() for part in parts]


def check_position(content: dict, streams: int, stops: list[int]) -> None:
    """Check that a training can resume in the middle of an epoch.

    Args:
        content: what the checkpoint holds of the task.
        streams: number of streams of all workers.
        stops: time steps read after each batch of the epoch.

    Raises:
        UserError: the checkpoint was made with other streams or batches.
    """
    state, step = content["state"], content["step"]
    if state[0].size(1) != streams:
        raise UserError(
            f"the checkpoint is from the middle of an epoch with {state[0].size(1)} streams, but "
            f"--batch-size times workers is {streams}; give the values it was made with, or "
            "--reset-dataloader to start the epoch again"
        )
    # fairseq skips this number of batches, wherever in the text they end in this run.
    pieces = content.get("pieces", bisect_right(stops, step))
    if stops[pieces - 1 : pieces] != [step]:
        raise UserError(
            f"the checkpoint is from the middle of an epoch, after {pieces} batches with {step} "
            "steps in total, but the batches of this run have other lengths; give the data, "
            "--bptt, --bptt-jitter and --seed it was made with, or --reset-dataloader to start "
            "the epoch again"
        )
