"""How far a training or an evaluation has read its streams, and with which state."""

from __future__ import annotations

import logging

from .language_model import CarriedState, map_state

logger = logging.getLogger(__name__)


class StreamPosition:
    """How far the streams of one data set have been read, and their state there.

    Attributes:
        start: steps before the last batch.
        stop: steps after it.
        before, after: the state there, as :class:`CarriedState` holds it; None for zeros.
    """

    def __init__(self, start: int = 0, stop: int = 0, before=None, after=None):
        self.start, self.stop, self.before, self.after = start, stop, before, after

    def state_at(self, start: int, device):
        """The state to begin with at ``start``; None for zeros, as at the text's start.

        A batch may come twice in a row: after an overflow of half precision, say.
        """
        if start == 0:
            return None
        for position, state in ((self.stop, self.after), (self.start, self.before)):
            if position == start and state is not None:
                return map_state(lambda part: part.to(device), state)
        logger.warning("no state is known for step %d of the text; starting from zeros", start)
        return None


class StatefulBatches:
    """Batches of streams whose state flows from each to the next without the task's help."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        carried = CarriedState()
        for sample in self.batches:
            yield with_carried(sample, carried)


def with_carried(sample: dict, carried: CarriedState) -> dict:
    """``sample`` whose model starts from ``carried`` and leaves its state there."""
    return {**sample, "net_input": {**sample["net_input"], "carried": carried}}
