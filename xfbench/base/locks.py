"""One process at a time at what several may want: who comes second waits, and not for ever.

A lock is a file that nobody deletes. The system lets go of it when its holder ends, however.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from xfbench.base.errors import UnavailableError
from xfbench.base.terminal_text import say

TIMEOUT_S = 7200.0  # seconds: nothing that is done under a lock takes as long


@contextlib.contextmanager
def exclusive(
    path: Path, activity: str, report: Callable[[str], None] = say, timeout_s: float = TIMEOUT_S
) -> Iterator[None]:
    """Hold the lock `path` while the block runs.

    `activity` says what the holder does ("makes this environment"). `report` receives it in a
    message if the lock is taken. Raises UnavailableError if the lock is not free in `timeout_s`.
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
                f"see to it (fuser {path} says which) and try again"
            ) from None
    try:
        yield
    finally:
        lock.release()
