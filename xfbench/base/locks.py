"""Locks between processes, with a time limit for waiting.

A lock is a file that is never deleted. When a process ends for any reason, the system releases all
locks of the process. So a file that exists says nothing about who holds its lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from xfbench.base import paths, shared_files
from xfbench.base.errors import UnavailableError
from xfbench.base.terminal_text import say

TIMEOUT_S = 7200.0  # longer than any activity under a lock
_POLL_S = 0.05
_DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class HeldError(UnavailableError):
    """The error that another process still holds a lock."""


@contextlib.contextmanager
def exclusive(
    path: Path,
    activity: str,
    report: Callable[[str], None] = say,
    timeout_s: float = TIMEOUT_S,
    silent_s: float = 0.0,
) -> Iterator[None]:
    """Hold the lock `path` while the block runs.

    - `activity`: what every holder of this lock does, for example "submits this job".
    - `report`: receives a message with `activity` if another process holds the lock.
    - `timeout_s`: the longest time to wait for the lock, in seconds.
    - `silent_s`: how many seconds to wait before `report` is called.

    Raises HeldError if another process still holds the lock after `timeout_s`. Raises
    UnavailableError at once if the file system provides no locks.
    """
    with _open(path) as file:
        descriptor = file.fileno()  # closing it releases the lock
        if not _wait_for_lock(descriptor, path, silent_s):
            report(f"waiting for another process that {activity}")
            if not _wait_for_lock(descriptor, path, timeout_s):
                raise HeldError(
                    f"another process that {activity} has not ended in {timeout_s / 60:.0f} "
                    f"minutes: end it (fuser {path} shows its pid) and try again"
                )
        yield


def require_support(path: Path) -> None:
    """Raise UnavailableError if the file system of the lock file `path` provides no locks."""
    with _open(path) as file:
        _try_lock(file.fileno(), path)


def _open(path: Path) -> IO[bytes]:
    """Open or create a lock file, and close it to others, unless the user trusts others there.

    Whoever can read a lock file can hold its lock.
    """
    is_shared = paths.trusted_group() is not None or paths.is_in_trusted_folder(path)
    permissions = 0o666 if is_shared else shared_files.PRIVATE
    file = shared_files.open_file(path, "ab", any_owner=True, permissions=permissions)
    status = os.fstat(file.fileno())
    if not is_shared and status.st_uid == os.geteuid() and status.st_mode & 0o077:
        with contextlib.suppress(OSError):  # a file system without modes
            os.fchmod(file.fileno(), shared_files.PRIVATE)
    return file


def _wait_for_lock(descriptor: int, path: Path, timeout_s: float) -> bool:
    """Wait up to `timeout_s` seconds for the lock. Return whether this process has got it."""
    deadline = time.monotonic() + timeout_s
    while not _try_lock(descriptor, path):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _try_lock(descriptor: int, path: Path) -> bool:
    """Return whether this process has got the lock; False if another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EINTR):
            return False
        if error.errno in _DISK_ERRORS:
            raise UnavailableError(f"{path} cannot be locked: {error.strerror}") from error
        raise UnavailableError(
            f"the file system of {path.parent} provides no locks ({error.strerror}): put the "
            "results (--results) and the cache (XFBENCH_HOME) on another file system, or mount "
            "this one with locks (Lustre: -o flock; NFS: with its lock service)"
        ) from error
    return True
