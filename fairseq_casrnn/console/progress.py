"""Show the progress of long computations on standard error, after the first seconds."""

import sys
import time
from collections.abc import Iterable, Iterator

from tqdm import tqdm

DELAY = 10.0  # seconds until progress is shown
INTERVAL = 60.0  # seconds between lines, without a terminal


def progress_bar(items: Iterable, total: int, what: str) -> Iterator:
    """Yield ``items`` and show progress: a bar on a terminal, else a line per minute.

    Args:
        items: the items.
        total: their number.
        what: text before the numbers.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, what, total, leave=False, delay=DELAY, dynamic_ncols=True)
        return
    start = last_line = time.monotonic()
    for number, item in enumerate(items):
        now = time.monotonic()
        if number and now - start > DELAY and (last_line == start or now - last_line > INTERVAL):
            last_line = now
            left = (now - start) * (total - number) / number
            print(f"{what}: {number} of {total}, {left:.0f} s left", file=sys.stderr, flush=True)
        yield item
