"""Threads that decode, scale and digest images on all cores, in order and ahead of the writer.

Threads suffice, because Pillow and the digests run in parallel in one process. Unlike child
processes, threads always end with the process.
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

_ITEMS_PER_TASK = 8  # more than one, because starting a task takes as long as a small image


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in the order of `items`.

    Threads on all cores compute the results a few tasks ahead. A task is `_ITEMS_PER_TASK`
    consecutive items. If `function` raises an exception, the generator raises it and yields no
    result of that task. Close the generator to stop the threads.
    """
    cores = len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(cores, thread_name_prefix="ahead")
    pending: collections.deque[Future[list[Result]]] = collections.deque()
    try:
        for batch in _batches(items):
            pending.append(pool.submit(_apply_to_batch, function, batch))
            if len(pending) > 2 * cores:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _apply_to_batch(function: Callable[[Item], Result], batch: tuple[Item, ...]) -> list[Result]:
    return [function(item) for item in batch]


def _batches(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    remaining = iter(items)
    while batch := tuple(itertools.islice(remaining, _ITEMS_PER_TASK)):
        yield batch
