"""Reads files that somebody else has written, a worker above all: they may be anything.

Only plain files are opened, never a pipe or a device, nor, in a run's folder, a link; as much is
read as the caller asks for; and what is kept of an endless output is its beginning and its end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_KEPT_BYTES = 16 * 2**20  # bytes of an output, once the launch is over
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class NotPlainError(OSError):
    """There is something else than a file under a name."""


def read_bytes(path: Path, max_bytes: int, *, follow_link: bool = False) -> bytes:
    """Return the content of a plain file; with `follow_link`, also of one behind a link.

    Raises OSError, and ValueError if it is longer than `max_bytes`.
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
                raise ValueError("it grows while it is read")
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
    """Of a longer output keep the beginning and the end, and say between them what is left out."""
    half = MAX_KEPT_BYTES // 2
    try:
        with _open_plain(path, os.O_RDWR | os.O_NOFOLLOW) as (descriptor, size):
            if size <= MAX_KEPT_BYTES:
                return
            tail = os.pread(descriptor, half, size - half)
            notice = f"\n… {size - 2 * half:,} bytes left out …\n".encode()
            os.pwrite(descriptor, notice + tail, half)
            os.ftruncate(descriptor, half + len(notice) + len(tail))
    except OSError:  # its worker took it away, or the disk is full
        return


@contextmanager
def _open_plain(path: Path, flags: int) -> Iterator[tuple[int, int]]:
    """A plain file's descriptor and size. Raises OSError."""
    descriptor = os.open(path, flags | _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlainError(f"{path.name} is no plain file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)
