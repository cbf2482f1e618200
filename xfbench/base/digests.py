"""Digests of JSON values (RFC 8785 canonical form), of bytes and of files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import orjson
import rfc8785

# Numbers such as 2.0 and 5.5e-5, which orjson writes differently from the canonical form.
_ZERO_FRACTION = re.compile(rb"\.0(?=[,\]}])")
_SMALL_NUMBER = re.compile(rb"(-?)(\d)(?:\.(\d+))?e-([56])(?=[,\]}])")


def of_bytes(content: bytes) -> str:
    """Return "sha256:" and the hexadecimal digest of `content`."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def of_json(value: Any) -> str:
    """Return the digest of a JSON value's canonical form. Equal values have equal digests."""
    return of_bytes(rfc8785.dumps(value))


def canonical_form_if(value: Any, expected_digest: str) -> bytes | None:
    """Return the canonical form of a JSON value if `expected_digest` is its digest, else None.

    This is usually faster than `of_json`, because `likely_canonical_form` is tried first.
    """
    fast_form = likely_canonical_form(value)
    if fast_form is not None and of_bytes(fast_form) == expected_digest:
        return fast_form
    exact_form = rfc8785.dumps(value)
    return exact_form if of_bytes(exact_form) == expected_digest else None


def likely_canonical_form(value: Any) -> bytes | None:
    """Return text that is nearly always the canonical form of a JSON value.

    - This is faster than `rfc8785`, which always returns the canonical form.
    - Even if the text is not the canonical form, different values have different texts.
    - Returns None if `orjson` cannot write the value.
    - Returns None if a string contains a quotation mark or ends with a backslash.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None
    if b'\\"' in text:
        return None  # the code below needs every quotation mark to begin or end a string
    parts = text.split(b'"')
    outside_strings = _ZERO_FRACTION.sub(b"", b'"'.join(parts[::2]))
    if b"e-" in outside_strings:
        outside_strings = _SMALL_NUMBER.sub(_convert_exponent_to_decimal, outside_strings)
    parts[::2] = outside_strings.split(b'"')
    return b'"'.join(parts)


def _convert_exponent_to_decimal(match: re.Match[bytes]) -> bytes:
    sign, digit, fraction, exponent = match.groups(default=b"")
    return b"%s0.%s%s%s" % (sign, b"0" * (int(exponent) - 1), digit, fraction)


def of_files(files: dict[str, bytes]) -> str:
    """Return the digest of `files` (content by name). Their order does not matter."""
    return of_json({name: of_bytes(content) for name, content in files.items()})


def read_files_below(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below `folder`, by POSIX path relative to `folder`.

    Files in `__pycache__` folders are left out.
    """
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
