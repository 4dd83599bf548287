"""A bar on standard error for what takes long: nothing where it is over within seconds."""

import sys
from collections.abc import Iterable, Iterator

from tqdm import tqdm

PATIENCE = 10.0  # seconds


def shown(items: Iterable, total: int, what: str) -> Iterator:
    """``items``, of which there are ``total``; ``what`` stands before the bar.

    On a terminal it moves, and is gone at the end; elsewhere there is a line a minute.
    """
    terminal = sys.stderr.isatty()
    yield from tqdm(
        items,
        total=total,
        desc=what,
        delay=PATIENCE,
        mininterval=0.5 if terminal else 60.0,
        maxinterval=10.0 if terminal else 120.0,
        leave=False,
        dynamic_ncols=True,
        file=sys.stderr,
    )
