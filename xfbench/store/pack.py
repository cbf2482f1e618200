"""Many records in one file, each verifiable by itself: `xfbench.pack/1`.

A pack is newline-delimited JSON. A line is the canonical form of a record (RFC 8785) with its id in
front. The id is the SHA-256 of "{" and of the line after its first 80 bytes:

    {"id":"sha256:<64 hex>",<the rest of the canonical form>

The pack's name is the SHA-256 of its ids in their order, one hexadecimal digest per line. If a
record is missing, the name no longer matches. A pack is written completely or not at all, and never
changed.
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
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, EditedError

SUFFIX = ".ndjson"
_ID_FIELD_BYTES = 80
_LINE_START = b'{"id":"sha256:'


@dataclass(frozen=True)
class PackLine:
    """A line of a pack.

    `number` counts from 1. `offset` is the position of the line in the file, and `content` has its
    bytes without the newline. `identity` is the hexadecimal id of the record. If the line is not a
    record, `identity` is None and `defect` says why.
    """

    number: int
    offset: int
    content: bytes
    identity: str | None
    defect: str | None = None


def format_line(document: dict[str, Any]) -> bytes:
    """Return a record as a line with its newline. Raises EditedError if the record was edited."""
    content = {name: value for name, value in document.items() if name != "id"}
    body = digests.canonical_form_if(content, document["id"])
    if body is None:
        raise EditedError("its content does not match its id")
    return f'{{"id":"{document["id"]}",'.encode() + body[1:] + b"\n"


def verify_line(line: bytes) -> str:
    """Return the hexadecimal id of a line without its newline.

    Raises EditedError if the content does not match the id.
    """
    stated_id = line[len(_LINE_START) : _ID_FIELD_BYTES - 2]
    computed_hash = hashlib.sha256(b"{")
    computed_hash.update(memoryview(line)[_ID_FIELD_BYTES:])
    if not line.startswith(_LINE_START) or computed_hash.hexdigest().encode() != stated_id:
        raise EditedError("its content does not match its id")
    return stated_id.decode()


def read_lines(path: Path) -> Iterator[PackLine]:
    """Yield every line of a pack in order.

    If the pack itself has a defect, a last line with number 0 states it. Raises OSError.
    """
    ids_hash = hashlib.sha256()
    offset = 0
    number = 0
    with path.open("rb") as file:
        while content := file.readline(MAX_DOCUMENT_BYTES):
            number += 1
            if content.endswith(b"\n"):
                line, defect = content[:-1], None
            else:
                line, defect = content, "the line is truncated"
            try:
                line_id = None if defect else verify_line(line)
            except EditedError as error:
                line_id, defect = None, str(error)
            # Hash the stated ids, so that an edited line is not also reported as a wrong name.
            ids_hash.update(line[len(_LINE_START) : _ID_FIELD_BYTES - 2] + b"\n")
            yield PackLine(number, offset, line, line_id, defect)
            offset += len(content)
    if ids_hash.hexdigest() != path.stem:
        yield PackLine(0, 0, b"", None, "its name does not match its records: some are missing")


def read_stated_ids(path: Path) -> list[str]:
    """Return the hexadecimal ids that the lines state, without verifying them. Raises OSError."""
    ids = []
    with path.open("rb") as file:
        while content := file.readline(MAX_DOCUMENT_BYTES):
            ids.append(content[len(_LINE_START) : _ID_FIELD_BYTES - 2].decode("ascii", "replace"))
    return ids


def write_pack(folder: Path, lines: Iterable[bytes]) -> Path | None:
    """Write these lines to a new pack in `folder`, and sync it to disk.

    Return the path of the pack, or None if there are no lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ids_hash = hashlib.sha256()
    count = 0
    handle, name = tempfile.mkstemp(dir=folder, suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb", buffering=2**20) as file:
            for line in lines:
                ids_hash.update(line[len(_LINE_START) : _ID_FIELD_BYTES - 2] + b"\n")
                file.write(line)
                count += 1
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~atomic_files.umask())
            os.fsync(file.fileno())
        if not count:
            return None
        target = folder / f"{ids_hash.hexdigest()}{SUFFIX}"
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return target


def to_record_file_content(line: bytes) -> bytes:
    """Return a line as the content of a record's own file."""
    return (json.dumps(json.loads(line), indent=1, ensure_ascii=False) + "\n").encode()
