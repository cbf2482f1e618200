"""Calls of a function in other processes, for work on many files."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from itertools import chain, islice
from typing import TypeVar

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

_MAX_PROCESSES = 8


def map_in_order(
    function: Callable[[TaskT], ResultT], tasks: Iterable[TaskT], *, in_processes: bool
) -> Iterator[ResultT]:
    """Yield the result of `function` for each task, in the order of the tasks.

    - `in_processes`: whether to call `function` in other processes, one for each CPU that this
      process may use, at most eight. Starting them takes about a second.

    At most two tasks per process are begun before their results are requested. If processes cannot
    be started, or one is killed, the remaining calls are made here. Raises what `function` raises.
    """
    count = min(len(os.sched_getaffinity(0)), _MAX_PROCESSES)
    if not in_processes or count < 2:
        yield from map(function, tasks)
        return
    # It does not run the main module again in each process, as multiprocessing does.
    from loky import ProcessPoolExecutor

    remaining = iter(tasks)
    begun: deque[TaskT] = deque()
    try:
        with ProcessPoolExecutor(count) as executor:
            yield from _results_of_executor(executor, function, remaining, begun, 2 * count)
    except (BrokenExecutor, OSError):
        yield from map(function, chain(begun, remaining))


def _results_of_executor(
    executor: Executor,
    function: Callable[[TaskT], ResultT],
    remaining: Iterator[TaskT],
    begun: deque[TaskT],
    max_begun: int,
) -> Iterator[ResultT]:
    """Yield results in order. `begun` has the tasks that were taken, without a result yet."""
    futures: deque[Future[ResultT]] = deque()
    while True:
        for task in islice(remaining, max_begun - len(begun)):
            begun.append(task)
            futures.append(executor.submit(function, task))
        if not begun:
            return
        result = futures[0].result()
        begun.popleft()
        futures.popleft()
        yield result
