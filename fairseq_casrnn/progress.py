"""How far something is that takes long: on standard error, nothing in the first seconds."""

import sys
import time
from collections.abc import Iterable, Iterator

from tqdm import tqdm

PATIENCE = 10.0  # seconds
INTERVAL = 60.0  # seconds between two lines where there is no terminal


def shown(items: Iterable, total: int, what: str) -> Iterator:
    """``items``, of which there are ``total``; ``what`` stands before the numbers.

    On a terminal there is a bar, which is gone at the end; elsewhere a line a minute.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, what, total, leave=False, delay=PATIENCE, dynamic_ncols=True)
        return
    begun = said = time.monotonic()
    for number, item in enumerate(items):
        now = time.monotonic()
        if number and now - begun > PATIENCE and (said == begun or now - said > INTERVAL):
            said = now
            left = (now - begun) * (total - number) / number
            print(f"{what}: {number} of {total}, {left:.0f} s left", file=sys.stderr, flush=True)
        yield item
