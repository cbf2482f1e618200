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
Done = TypeVar("Done")

_AT_ONCE = 8  # items of a task: small images take no longer than a task's start does


def in_order(do: Callable[[Item], Done], items: Iterable[Item]) -> Generator[Done, None, None]:
    """What `do` makes of each item, in their order, at most a few tasks ahead of who asks.

    Whatever `do` raises comes where its result would have. Close it, so that no thread goes on.
    """
    cores = len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(cores, thread_name_prefix="ahead")
    waiting: collections.deque[Future[list[Done]]] = collections.deque()
    try:
        for batch in _batches(items):
            waiting.append(pool.submit(_all, do, batch))
            if len(waiting) > 2 * cores:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _all(do: Callable[[Item], Done], batch: tuple[Item, ...]) -> list[Done]:
    return [do(item) for item in batch]


def _batches(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    left = iter(items)
    while batch := tuple(itertools.islice(left, _AT_ONCE)):
        yield batch
