"""A file of a data set that is not trusted: bytes are read where they are, or it is Damaged.

Nothing is mapped, so that a file that others shorten while it is read is an error and no signal;
and processes that share one after a fork do not move each other's place in it.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Dict

from xfbench.worker.formats import Damaged, SampleList

MAX_LABEL = 2**31 - 1
_IMAGE_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


class DataFile:
    """An open file; `size` in bytes as it was opened. Raises Damaged where it cannot be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Damaged(f"{path} cannot be read: {error.strerror}") from error
        weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int, description: str) -> bytes:
        """Read `length` bytes from `offset`; `description` names them in the error if it fails."""
        if offset + length > self.size:
            raise self.damaged(
                description,
                f"it is truncated: {offset + length} bytes needed, the file has {self.size}",
            )
        parts, remaining = [], length
        while remaining:
            part = os.pread(self._descriptor, remaining, offset)
            if not part:
                raise self.damaged(
                    description, f"the file has been cut to {offset} bytes meanwhile"
                )
            parts.append(part)
            offset, remaining = offset + len(part), remaining - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def damaged(self, place_name: str, defect: str) -> Damaged:
        """Return the error for a defect: which file, where in it, and what is wrong."""
        return Damaged(f"{self.path}, {place_name}: {defect}")


class KeyChecker:
    """Finds repeated keys in a split without a list."""

    def __init__(self, listed: SampleList | None) -> None:
        self._met: Dict[str, int] | None = {} if listed is None else None

    def check(self, key: str, index: int) -> str | None:
        """What is wrong with the key of the sample of that index, if anything is."""
        if not key or any(mark in key for mark in "\n\r\t"):
            return f"its key {key!r} is empty or has line ends or tabs"
        if self._met is not None and self._met.setdefault(key, index) != index:
            return f"its key {key!r} is another's too"
        return None


def check_label(label: int) -> str | None:
    """Return what is wrong with a label, or None."""
    if not 0 <= label <= MAX_LABEL:
        return f"label {label} is not within 0 to {MAX_LABEL}"
    return None


def check_image(image: bytes) -> str | None:
    """Return what is wrong with the first bytes of an image file, or None."""
    if not image.startswith(_IMAGE_SIGNATURES):
        return f"its image begins with {image[:8].hex(' ') or 'nothing'}: neither JPEG nor PNG"
    return None


def check_count(path: Path, sample_count: int, listed: SampleList | None) -> None:
    """Raise Damaged if a split's sample count differs from its list."""
    if listed is not None and sample_count != len(listed.keys):
        raise Damaged(f"{path} holds {sample_count} samples, its list {len(listed.keys)}")
