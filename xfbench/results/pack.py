"""Many records in one file, each still verifiable by itself: `xfbench.pack/1`.

A pack is newline-delimited JSON. A line is a record's canonical form (RFC 8785) with its id
in front, so that the id is the SHA-256 of "{" and what comes after the line's first 80 bytes:

    {"id":"sha256:<64 hex>",<the rest of the canonical form>

The pack's name is the SHA-256 of its ids, one hexadecimal digest a line, in their order: a
record that was taken out is missed. It is written whole or not at all, and never changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xfbench.base import atomic_files, digests
from xfbench.records.sealed import LONGEST, EditedError

SUFFIX = ".ndjson"
_HEAD = 80
_START = b'{"id":"sha256:'


@dataclass(frozen=True)
class Line:
    """A line of a pack: its number from 1, where it begins, and its bytes without the newline.

    `identity` is that of the record, hexadecimal; None where the line is none, as `defect` says.
    """

    number: int
    offset: int
    content: bytes
    identity: str | None
    defect: str | None = None


def line(document: dict[str, Any]) -> bytes:
    """A record's JSON values as a line, with its newline. Raises EditedError for an edited one."""
    rest = {name: value for name, value in document.items() if name != "id"}
    body = digests.canonical_form_if(rest, document["id"])
    if body is None:
        raise EditedError("its content is not what its id says")
    return f'{{"id":"{document["id"]}",'.encode() + body[1:] + b"\n"


def identity(content: bytes) -> str:
    """The hexadecimal id of a line, without its newline. Raises EditedError unless it fits."""
    told = content[len(_START) : _HEAD - 2]
    found = hashlib.sha256(b"{")
    found.update(memoryview(content)[_HEAD:])
    if not content.startswith(_START) or found.hexdigest().encode() != told:
        raise EditedError("its content is not what its id says")
    return told.decode()


def lines(path: Path) -> Iterator[Line]:
    """Every line of a pack in its order, and in the end whether all are there.

    A last one with number 0 says what is wrong with the whole. Raises OSError.
    """
    whole = hashlib.sha256()
    offset = 0
    number = 0
    with path.open("rb") as file:
        while content := file.readline(LONGEST):
            number += 1
            if content.endswith(b"\n"):
                bare, defect = content[:-1], None
            else:
                bare, defect = content, "the line is cut off"
            try:
                found = None if defect else identity(bare)
            except EditedError as error:
                found, defect = None, str(error)
            # What the line says of itself decides the name: an edited one is told once.
            whole.update(bare[len(_START) : _HEAD - 2] + b"\n")
            yield Line(number, offset, bare, found, defect)
            offset += len(content)
    if whole.hexdigest() != path.stem:
        yield Line(0, 0, b"", None, "its name is not that of its records: some are missing")


def claimed(path: Path) -> list[str]:
    """The ids that lines say they have, hexadecimal and not verified. Raises OSError."""
    found = []
    with path.open("rb") as file:
        while content := file.readline(LONGEST):
            found.append(content[len(_START) : _HEAD - 2].decode("ascii", "replace"))
    return found


def write(folder: Path, lines: Iterable[bytes]) -> Path | None:
    """A new pack of these lines in `folder`, on the disk when this returns; None of no line."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256()
    count = 0
    handle, name = tempfile.mkstemp(dir=folder, suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb", buffering=2**20) as file:
            for one in lines:
                whole.update(one[len(_START) : _HEAD - 2] + b"\n")
                file.write(one)
                count += 1
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~atomic_files.umask())
            os.fsync(file.fileno())
        if not count:
            return None
        target = folder / f"{whole.hexdigest()}{SUFFIX}"
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return target


def as_file(content: bytes) -> bytes:
    """A line as the file that the record would be alone."""
    return (json.dumps(json.loads(content), indent=1, ensure_ascii=False) + "\n").encode()
