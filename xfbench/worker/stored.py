"""Read an untrusted file of a data set: every read returns the bytes or raises Damaged.

Nothing is mapped, so that a file that is truncated while it is read causes an error, not a
signal. Processes that share a file after a fork do not move each other's position.
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
    """An open file, with its `size` in bytes when opened. Raises Damaged if opening fails."""

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
                    description, f"the file was truncated to {offset} bytes in the meantime"
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
        """Return what is wrong with the key of the sample at this index, or None."""
        if not key or any(mark in key for mark in "\n\r\t"):
            return f"its key {key!r} is empty or has line ends or tabs"
        if self._met is not None and self._met.setdefault(key, index) != index:
            return f"its key {key!r} occurs twice"
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
