"""Reads files that other programs wrote, mostly workers, without trusting them.

Only plain files are opened: no pipe, no device and, in a run's folder, no link. The caller limits
the size. Of a very long output, only the beginning and the end are kept.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_KEPT_BYTES = 16 * 2**20  # of an output after the launch
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class NotPlainError(OSError):
    """The path is not a plain file."""


def read_bytes(path: Path, max_bytes: int, *, follow_link: bool = False) -> bytes:
    """Return the content of a plain file; with `follow_link`, also of one behind a link.

    Raises OSError, or ValueError if the file is longer than `max_bytes`.
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
    """Return the last `max_bytes` of a file as text; empty if there is no plain file."""
    try:
        with _open_plain(path, os.O_RDONLY | os.O_NOFOLLOW) as (descriptor, size):
            return os.pread(descriptor, max_bytes, max(0, size - max_bytes)).decode(
                errors="replace"
            )
    except OSError:
        return ""


def remove_middle(path: Path) -> None:
    """Replace the middle of an output longer than `MAX_KEPT_BYTES` by a notice."""
    half = MAX_KEPT_BYTES // 2
    try:
        with _open_plain(path, os.O_RDWR | os.O_NOFOLLOW) as (descriptor, size):
            if size <= MAX_KEPT_BYTES:
                return
            tail = os.pread(descriptor, half, size - half)
            notice = f"\n… {size - 2 * half:,} bytes left out …\n".encode()
            os.pwrite(descriptor, notice + tail, half)
            os.ftruncate(descriptor, half + len(notice) + len(tail))
    except OSError:  # the worker removed it, or the disk is full
        return


@contextmanager
def _open_plain(path: Path, flags: int) -> Iterator[tuple[int, int]]:
    """Open a plain file and yield its descriptor and size. Raises OSError."""
    descriptor = os.open(path, flags | _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlainError(f"{path.name} is not a plain file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)
