"""Calls of a function in other processes, for work on many files."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from itertools import islice
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
    be started, or one is killed, the calls are made here. Raises what `function` raises.
    """
    count = min(len(os.sched_getaffinity(0)), _MAX_PROCESSES)
    if not in_processes or count < 2:
        yield from map(function, tasks)
        return
    # It does not run the main module again in each process, as multiprocessing does.
    from loky import ProcessPoolExecutor

    remaining = iter(tasks)
    begun: deque[tuple[TaskT, Future[ResultT] | None]] = deque()
    with ProcessPoolExecutor(count) as executor:
        while True:
            for task in islice(remaining, 2 * count - len(begun)):
                begun.append((task, _submit(executor, function, task)))
            if not begun:
                return
            task, future = begun.popleft()
            try:
                result = function(task) if future is None else future.result()
            except BrokenExecutor:
                result = function(task)
            yield result


def _submit(
    executor: Executor, function: Callable[[TaskT], ResultT], task: TaskT
) -> Future[ResultT] | None:
    """Return the future result, or None if processes cannot be started any more."""
    try:
        return executor.submit(function, task)
    except (BrokenExecutor, ImportError, NotImplementedError, OSError):
        return None
