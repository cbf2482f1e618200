"""Safe reads of the untrusted files of a data set, and checks of their content.

Every read returns the requested bytes or raises Damaged. Files are not mapped into memory, so a
file that is truncated during a read causes an error, not a signal. Reads do not use the file's
position, so processes can share an open file after a fork.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Dict

from xfbench.worker.formats import MAX_IMAGE_BYTES, Damaged, SampleList, open_plain

MAX_LABEL = 2**31 - 1
_IMAGE_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


class DataFile:
    """An open file. `size` is the number of bytes that it had when it was opened.

    - `follow_link`: whether `path` may be a symbolic link to a plain file.

    The constructor raises Damaged if the file cannot be opened or is not plain.
    """

    def __init__(self, path: Path, *, follow_link: bool = False) -> None:
        self.path = path
        self._descriptor = open_plain(path, follow_link=follow_link)
        weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int, description: str) -> bytes:
        """Return the `length` bytes at `offset`.

        Raises Damaged if the file has fewer bytes, or if they are too many for an image. A file may
        have a hole in place of them. `description` names the bytes in the message.
        """
        if length > MAX_IMAGE_BYTES:
            raise self.damaged(
                description, f"it has more than {MAX_IMAGE_BYTES >> 20} MiB: not an image"
            )
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
        """Return the error for a defect of this file.

        - `place_name`: the place in the file, such as "record 3".
        - `defect`: what is wrong there.
        """
        return Damaged(f"{self.path}, {place_name}: {defect}")


class KeyChecker:
    """A check of the keys in a split. A key must not be empty or contain line ends or tabs.

    If `listed` is None and `unique` is true, a key must also not occur twice.
    """

    def __init__(self, listed: SampleList | None, *, unique: bool = True) -> None:
        self._met: Dict[str, int] | None = {} if listed is None and unique else None

    def check(self, key: str, index: int) -> str | None:
        """Return what is wrong with `key`, or None. `index` is the position of its sample."""
        if not key or any(mark in key for mark in "\n\r\t"):
            return f"its key {key!r} is empty or has line ends or tabs"
        if self._met is not None and self._met.setdefault(key, index) != index:
            return f"its key {key!r} occurs twice"
        return None


def check_label(label: int) -> str | None:
    """Return what is wrong with a label, or None if it is valid."""
    if not 0 <= label <= MAX_LABEL:
        return f"label {label} is not within 0 to {MAX_LABEL}"
    return None


def check_image_signature(image: bytes) -> str | None:
    """Return what is wrong with the first bytes of an image file.

    Returns None if the file begins as a JPEG or PNG file does.
    """
    if not image.startswith(_IMAGE_SIGNATURES):
        return f"its image begins with {image[:8].hex(' ') or 'nothing'}: neither JPEG nor PNG"
    return None


def check_count(path: Path, sample_count: int, listed: SampleList | None) -> None:
    """Raise Damaged if a split's files and its list have different numbers of samples.

    - `path`: the file or folder with the samples, for the message.
    - `sample_count`: the number of samples in the files.
    - `listed`: the split's list, or None if there is none to compare with.
    """
    if listed is not None and sample_count != len(listed.keys):
        raise Damaged(f"{path} has {sample_count} samples, but its list has {len(listed.keys)}")
