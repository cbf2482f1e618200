"""Decodes, scales and digests images ahead of whoever writes them, on all cores, in their order.

Threads do, since Pillow's decoding and scaling, and digests, run beside each other in one process;
they end with it, whatever ends it.
"""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_ITEMS_PER_TASK = 8  # items of a task: small images take no longer than a task's start does


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """What `do` makes of each item, in their order, at most a few tasks ahead of who asks.

    Whatever `do` raises comes where its result would have. Close it, so that no thread goes on.
    """
    cores = len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(cores, thread_name_prefix="ahead")
    pending: collections.deque[Future[list[Result]]] = collections.deque()
    try:
        for batch in _batches(items):
            pending.append(pool.submit(_apply, function, batch))
            if len(pending) > 2 * cores:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _apply(function: Callable[[Item], Result], batch: tuple[Item, ...]) -> list[Result]:
    return [function(item) for item in batch]


def _batches(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    remaining = iter(items)
    while batch := tuple(itertools.islice(remaining, _ITEMS_PER_TASK)):
        yield batch
