"""Locks between processes, with a time limit for waiting.

A lock is a file that is never deleted. When a process ends for any reason, the system releases all
locks of the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from xfbench.base.errors import UnavailableError
from xfbench.base.terminal_text import say

TIMEOUT_S = 7200.0  # longer than any activity under a lock


@contextlib.contextmanager
def exclusive(
    path: Path, activity: str, report: Callable[[str], None] = say, timeout_s: float = TIMEOUT_S
) -> Iterator[None]:
    """Hold the lock `path` while the block runs.

    - `activity`: what every holder of this lock does, for example "submits this job".
    - `report`: receives a message with `activity` if another process holds the lock.
    - `timeout_s`: the longest time to wait for the lock, in seconds.

    Raises UnavailableError if another process still holds the lock after `timeout_s`.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another process that {activity}")
        try:
            lock.acquire(timeout=timeout_s)
        except Timeout:
            raise UnavailableError(
                f"another process that {activity} has not ended in {timeout_s / 60:.0f} minutes: "
                f"end it (fuser {path} shows its pid) and try again"
            ) from None
    try:
        yield
    finally:
        lock.release()
