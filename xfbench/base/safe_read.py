"""Safe reading of files that other programs wrote, mostly workers.

Only plain files are opened: no pipe, no device, and no symbolic link unless the caller allows it.
The caller limits the size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_KEPT_BYTES = 16 * 2**20  # of each output file, after the launch
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class NotPlainError(OSError):
    """The error that a path is not a plain file."""


def read_bytes(path: Path, max_bytes: int, *, follow_link: bool = False) -> bytes:
    """Return the content of a plain file.

    - `follow_link`: whether `path` may be a symbolic link to a plain file.
    - Raises OSError if the file cannot be read or is not plain.
    - Raises ValueError if the file is longer than `max_bytes`.
    """
    with _open_plain(
        path, os.O_RDONLY if follow_link else os.O_RDONLY | os.O_NOFOLLOW
    ) as plain_file:
        descriptor, size = plain_file
        if size > max_bytes:
            raise ValueError(f"it is longer than {max_bytes >> 20} MiB")
        chunks = []
        while chunk := os.read(descriptor, min(size + 1, 2**20)):
            chunks.append(chunk)
            max_bytes -= len(chunk)
            if max_bytes < 0:
                raise ValueError("it grew while it was read")
        return b"".join(chunks)


def read_tail(path: Path, max_bytes: int) -> str:
    """Return the last `max_bytes` of a file as text, or "" if it cannot be read or is not plain."""
    try:
        with _open_plain(path, os.O_RDONLY | os.O_NOFOLLOW) as (descriptor, size):
            return os.pread(descriptor, max_bytes, max(0, size - max_bytes)).decode(
                errors="replace"
            )
    except OSError:
        return ""


def remove_middle(path: Path) -> None:
    """Shorten an output file that is longer than `MAX_KEPT_BYTES`.

    A notice replaces the middle of the file. A shorter or unreadable file is not changed.
    """
    half = MAX_KEPT_BYTES // 2
    try:
        with _open_plain(path, os.O_RDWR | os.O_NOFOLLOW) as (descriptor, size):
            if size <= MAX_KEPT_BYTES:
                return
            tail = os.pread(descriptor, half, size - half)
            notice = f"\n… {size - 2 * half:,} bytes left out …\n".encode()
            os.pwrite(descriptor, notice + tail, half)
            os.ftruncate(descriptor, half + len(notice) + len(tail))
    except OSError:  # for example, the worker removed the file, or the disk is full
        return


@contextmanager
def _open_plain(path: Path, flags: int) -> Iterator[tuple[int, int]]:
    """Open a plain file and yield (descriptor, size in bytes).

    Raises OSError if the file cannot be opened or is not plain.
    """
    descriptor = os.open(path, flags | _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlainError(f"{path.name} is not a plain file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)
