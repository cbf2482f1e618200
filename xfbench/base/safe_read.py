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

MOST_KEPT = 16 * 2**20  # bytes of an output, once the launch is over
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class NotPlainError(OSError):
    """There is something else than a file under a name."""


def whole(path: Path, most: int, *, linked: bool = False) -> bytes:
    """A file's content, if `linked` behind a link too.

    Raises OSError, and ValueError where it is longer than `most` bytes.
    """
    with _opened(path, os.O_RDONLY if linked else os.O_RDONLY | os.O_NOFOLLOW) as opened:
        descriptor, size = opened
        if size > most:
            raise ValueError(f"it is longer than {most >> 20} MiB")
        parts = []
        while part := os.read(descriptor, min(size + 1, 2**20)):
            parts.append(part)
            most -= len(part)
            if most < 0:
                raise ValueError("it grows while it is read")
        return b"".join(parts)


def end(path: Path, most: int) -> str:
    """The last `most` bytes of a file as text; nothing where there is no plain file."""
    try:
        with _opened(path, os.O_RDONLY | os.O_NOFOLLOW) as (descriptor, size):
            return os.pread(descriptor, most, max(0, size - most)).decode(errors="replace")
    except OSError:
        return ""


def shorten(path: Path) -> None:
    """Of a longer output keep the beginning and the end, and say between them what is left out."""
    half = MOST_KEPT // 2
    try:
        with _opened(path, os.O_RDWR | os.O_NOFOLLOW) as (descriptor, size):
            if size <= MOST_KEPT:
                return
            last = os.pread(descriptor, half, size - half)
            words = f"\n… {size - 2 * half:,} bytes left out …\n".encode()
            os.pwrite(descriptor, words + last, half)
            os.ftruncate(descriptor, half + len(words) + len(last))
    except OSError:  # its worker took it away, or the disk is full
        return


@contextmanager
def _opened(path: Path, how: int) -> Iterator[tuple[int, int]]:
    """A plain file's descriptor and size. Raises OSError."""
    descriptor = os.open(path, how | _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotPlainError(f"{path.name} is no plain file")
        yield descriptor, found.st_size
    finally:
        os.close(descriptor)
