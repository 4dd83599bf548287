"""Cutting sentences into batches by their numbers of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def split_batches(
    order: Iterable[Item], lengths: Iterable[int], most_tokens: int, most_items: int | None = None
) -> Iterator[list[Item]]:
    """Cut ``order`` into batches of consecutive items.

    A batch has at most ``most_items`` items and, unless it is a single item, at most
    ``most_tokens`` tokens including padding: long sentences would otherwise need gigabytes of
    memory.

    Args:
        order: the items, such as indices of sentences; if neighbours have similar lengths, batches
            have little padding.
        lengths: the length of each item of ``order``.
        most_tokens: maximum number of tokens.
        most_items: maximum number of items, or None.
    """
    batch: list[Item] = []
    longest = 0
    for item, length in zip(order, lengths, strict=True):
        longest = max(longest, length)
        if batch and (len(batch) == most_items or longest * (len(batch) + 1) > most_tokens):
            yield batch
            batch, longest = [], length
        batch.append(item)
    if batch:
        yield batch
