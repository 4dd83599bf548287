"""The position of a training or an evaluation in its token streams, and the state there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from fairseq.data import CountingIterator

from ..layers.state import State, map_state
from .language_decoder import CarriedState

logger = logging.getLogger(__name__)


class StreamPosition:
    """The last batch read from the streams of one data set, and the states around it.

    Attributes:
        start, stop: time steps of the streams before and after the last batch.
        before, after: the state at ``start`` and at ``stop``, as :class:`CarriedState` holds it;
            None for zeros.
    """

    def __init__(
        self, start: int = 0, stop: int = 0, before: State | None = None, after: State | None = None
    ):
        self.start, self.stop, self.before, self.after = start, stop, before, after

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
