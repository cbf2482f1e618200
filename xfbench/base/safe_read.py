"""Safe reading of files that other programs wrote, mostly workers.

Only plain files are opened: no pipe, no device, and no symbolic link unless the caller allows it.
The caller limits the size. `shared_files` opens the files.
"""

from __future__ import annotations

import os
from pathlib import Path

from xfbench.base.shared_files import open_file, read_content

MAX_KEPT_BYTES = 16 * 2**20  # of each output file, after the launch


def read_bytes(path: Path, max_bytes: int, *, follow_link: bool = False) -> bytes:
    """Return the content of a plain file.

    - `follow_link`: whether `path` may be a symbolic link to a plain file.
    - Raises OSError if the file cannot be read or is not plain.
    - Raises ValueError if the file is longer than `max_bytes`.
    """
    with open_file(path, "rb", follow_link=follow_link) as file:
        return read_content(file, max_bytes)


def read_tail(path: Path, max_bytes: int) -> str:
    """Return the last `max_bytes` of a file as text, or "" if it cannot be read or is not plain."""
    try:
        with open_file(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = os.pread(file.fileno(), max_bytes, max(0, size - max_bytes))
            return content.decode(errors="replace")
    except OSError:
        return ""


def remove_middle(path: Path) -> None:
    """Shorten an output file that is longer than `MAX_KEPT_BYTES`.

    A notice replaces the middle of the file. A shorter or unreadable file is not changed.
    """
    half = MAX_KEPT_BYTES // 2
    try:
        with open_file(path, "r+b") as file:
            descriptor = file.fileno()
            size = os.fstat(descriptor).st_size
            if size <= MAX_KEPT_BYTES:
                return
            tail = os.pread(descriptor, half, size - half)
            notice = f"\n… {size - 2 * half:,} bytes left out …\n".encode()
            os.pwrite(descriptor, notice + tail, half)
            os.ftruncate(descriptor, half + len(notice) + len(tail))
    except OSError:  # for example, the worker removed the file, or the disk is full
        return
