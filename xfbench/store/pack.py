"""Packs: many records in one file, each verifiable by itself (schema `xfbench.pack/1`).

A pack is newline-delimited JSON. A line is a record in canonical form (RFC 8785), but starts with
the id of the record:

    {"id":"sha256:<64 hex>",<the rest of the canonical form>

The first 80 bytes of the line contain the id. The id is the SHA-256 of "{" followed by the rest of
the line.

The name of a pack is the SHA-256 of its hexadecimal ids in order, each followed by a newline. If a
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

from xfbench.base import atomic_files, digests, strict_json
from xfbench.base.shared_files import open_file
from xfbench.model.sealed import MAX_DOCUMENT_BYTES, EditedError

SUFFIX = ".ndjson"
_ID_FIELD_BYTES = 80
_LINE_START = b'{"id":"sha256:'


@dataclass(frozen=True)
class PackLine:
    """A line of a pack, or a defect of the whole pack.

    - `number`: number of the line from 1, or 0 for a defect of the whole pack.
    - `offset`: position of the line in the file, in bytes.
    - `content`: bytes of the line, without its newline.
    - `identity`: hexadecimal id of the record, or None if there is a defect.
    - `defect`: why the line is not a record, or None if it is a record.
    """

    number: int
    offset: int
    content: bytes
    identity: str | None
    defect: str | None = None


def format_line(document: dict[str, Any]) -> bytes:
    """Return a record as a pack line, including the newline.

    `document` has the JSON values of the record. Raises EditedError if the other values do not
    match the value of "id".
    """
    content = {name: value for name, value in document.items() if name != "id"}
    body = digests.canonical_form_if(content, document["id"])
    if body is None:
        raise EditedError("the content does not match the id")
    return f'{{"id":"{document["id"]}",'.encode() + body[1:] + b"\n"


def verify_line(line: bytes) -> str:
    """Verify a pack line and return the hexadecimal id of its record.

    `line` has no newline. Raises EditedError if the content of the line does not match the id, or
    states an id twice.
    """
    stated_id = line[len(_LINE_START) : _ID_FIELD_BYTES - 2]
    computed_hash = hashlib.sha256(b"{")
    computed_hash.update(memoryview(line)[_ID_FIELD_BYTES:])
    if not line.startswith(_LINE_START) or computed_hash.hexdigest().encode() != stated_id:
        raise EditedError("the content does not match the id")
    if line.find(b'"id"', _ID_FIELD_BYTES) != -1 or b"\\u" in line:  # an escape may hide a key
        check_keys(line)
    return stated_id.decode()


def check_keys(line: bytes) -> None:
    """Raise EditedError if an object in a pack line has a key twice, or the line is no JSON.

    Readers disagree on which value of a repeated key counts.
    """
    try:
        strict_json.parse(line, parse_constant=strict_json.refuse_constant)
    except (ValueError, RecursionError) as error:
        raise EditedError(str(error).splitlines()[0]) from error


def read_lines_and_defects(path: Path) -> Iterator[PackLine]:
    """Yield every line of a pack in order.

    If the pack's name does not match the ids of its records, yield one more PackLine at the end.
    This PackLine has the number 0 and states the defect. Raises OSError if the pack cannot be read.
    """
    ids_hash = hashlib.sha256()
    offset = 0
    number = 0
    with open_file(path, "rb", follow_link=True) as file:
        size = os.fstat(file.fileno()).st_size  # what is appended meanwhile is not read
        while offset < size and (content := file.readline(MAX_DOCUMENT_BYTES)):
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
        yield PackLine(0, 0, b"", None, "the name does not match the records: some are missing")


def read_stated_ids(path: Path) -> list[str]:
    """Return the hexadecimal ids that the lines of a pack state, without verifying them.

    Raises OSError if the pack cannot be read.
    """
    ids = []
    with open_file(path, "rb", follow_link=True) as file:
        size = os.fstat(file.fileno()).st_size
        while file.tell() < size and (content := file.readline(MAX_DOCUMENT_BYTES)):
            ids.append(content[len(_LINE_START) : _ID_FIELD_BYTES - 2].decode("ascii", "replace"))
    return ids


def write_pack(folder: Path, lines: Iterable[bytes]) -> Path | None:
    """Write these lines to a new pack in `folder`, and sync the pack to disk.

    Each line includes its newline. Return the path of the pack, or None if there are no lines.
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
    """Return a pack line reformatted as the content of a single record file."""
    return (json.dumps(strict_json.parse(line), indent=1, ensure_ascii=False) + "\n").encode()
