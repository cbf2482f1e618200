"""Digests: of JSON values (RFC 8785 canonical form), of bytes and of a folder's files."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import rfc8785

# Where Python writes a number otherwise than the canonical form: 2.0, 3e-08 and 5.5e-05.
_WHOLE = re.compile(r"(?<=\d)\.0(?=[,\]}])")
_SMALL = re.compile(r"(?<=[:,\[])(-?)(\d)(?:\.(\d+))?e-0(\d)(?=[,\]}])")


def of_bytes(content: bytes) -> str:
    """ "sha256:" and the hexadecimal digest of `content`."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def of_json(value: Any) -> str:
    """The digest of a JSON value's canonical form: equal values, equal digests."""
    return of_bytes(rfc8785.dumps(value))


def canonical(value: Any, expected: str) -> bytes | None:
    """The canonical form of a JSON value if `expected` is its digest, and sooner than by `of_json`.

    A text that is not quite the canonical form has another digest, and is then written with
    care; one that has the digest cannot be anything else.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    quick = _SMALL.sub(_small, _WHOLE.sub("", text)).encode(errors="replace")
    if of_bytes(quick) == expected:
        return quick
    careful = rfc8785.dumps(value)
    return careful if of_bytes(careful) == expected else None


def _small(found: re.Match[str]) -> str:
    sign, first, rest, exponent = found.groups(default="")
    if int(exponent) > 6:
        return f"{sign}{first}{'.' + rest if rest else ''}e-{exponent}"
    return f"{sign}0.{'0' * (int(exponent) - 1)}{first}{rest}"


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
