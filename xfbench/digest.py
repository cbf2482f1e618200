"""Digests: of JSON values (RFC 8785 canonical form), of bytes and of a folder's files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import rfc8785


def of_bytes(content: bytes) -> str:
    """ "sha256:" and the hexadecimal digest of `content`."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def of_json(value: Any) -> str:
    """The digest of a JSON value's canonical form: equal values, equal digests."""
    return of_bytes(rfc8785.dumps(value))


def of_files(files: dict[str, bytes]) -> str:
    """The digest of named contents, whatever their order."""
    return of_json({name: of_bytes(content) for name, content in files.items()})


def files_below(folder: Path) -> dict[str, bytes]:
    """Relative POSIX path to content of every file below `folder`, byte code left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
