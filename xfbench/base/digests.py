"""Digests: of JSON values (RFC 8785 canonical form), of bytes and of a folder's files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import orjson
import rfc8785

# Where orjson writes a number otherwise than the canonical form: 2.0 and 5.5e-5.
_ZERO_FRACTION = re.compile(rb"\.0(?=[,\]}])")
_SMALL_NUMBER = re.compile(rb"(-?)(\d)(?:\.(\d+))?e-([56])(?=[,\]}])")


def of_bytes(content: bytes) -> str:
    """ "sha256:" and the hexadecimal digest of `content`."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def of_json(value: Any) -> str:
    """The digest of a JSON value's canonical form: equal values, equal digests."""
    return of_bytes(rfc8785.dumps(value))


def canonical_form_if(value: Any, expected: str) -> bytes | None:
    """The canonical form of a JSON value if `expected` is its digest, and sooner than by `of_json`.

    A text that is not quite the canonical form has another digest, and is then written with
    care; one that has the digest cannot be anything else.
    """
    fast_form = fast_canonical_form(value)
    if fast_form is not None and of_bytes(fast_form) == expected:
        return fast_form
    exact_form = rfc8785.dumps(value)
    return exact_form if of_bytes(exact_form) == expected else None


def fast_canonical_form(value: Any) -> bytes | None:
    """Nearly always the canonical form of what was read from JSON; None where it takes more care.

    Strings stand in it as they are, so that two values have one text only if they are equal.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None
    if b'\\"' in text:
        return None  # so that every quotation mark begins a string, or ends one
    parts = text.split(b'"')
    outside_strings = _ZERO_FRACTION.sub(b"", b'"'.join(parts[::2]))
    if b"e-" in outside_strings:
        outside_strings = _SMALL_NUMBER.sub(_expand_exponent, outside_strings)
    parts[::2] = outside_strings.split(b'"')
    return b'"'.join(parts)


def _expand_exponent(match: re.Match[bytes]) -> bytes:
    sign, digit, fraction, exponent = match.groups(default=b"")
    return b"%s0.%s%s%s" % (sign, b"0" * (int(exponent) - 1), digit, fraction)


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
