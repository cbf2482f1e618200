"""Read JSON that other people or programs wrote.

A repeated key is an error, because readers disagree on which value counts. The number of values is
limited, because a parsed value takes many times the memory of its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MAX_VALUES = 4_000_000  # of a document: more than any launch has


class DuplicateKeyError(ValueError):
    """Error for JSON in which an object has a key twice."""


class TooManyValuesError(ValueError):
    """Error for JSON with more values than the reader can use."""


def parse(
    content: bytes | str,
    *,
    max_values: int = MAX_VALUES,
    parse_int: Callable[[str], int] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:
    """Return the value of a JSON text.

    - `max_values`: maximum number of commas, arrays and objects.
    - `parse_int`, `parse_constant`: those of `json.loads`.

    Raises DuplicateKeyError if a key is repeated, and ValueError if the text has too many values or
    is no JSON. Raises RecursionError if it is nested too deeply.
    """
    check_size(content, max_values)
    return json.loads(
        content,
        object_pairs_hook=unique_object,
        parse_int=parse_int,
        parse_constant=parse_constant,
    )


def check_size(content: bytes | str, max_values: int = MAX_VALUES) -> None:
    """Raise TooManyValuesError if a JSON text may have more than `max_values` values."""
    if isinstance(content, bytes):
        marks = content.count(b",") + content.count(b"[") + content.count(b"{")
    else:
        marks = content.count(",") + content.count("[") + content.count("{")
    if marks > max_values:
        raise TooManyValuesError(f"it has more than {max_values:,} values")


def unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these keys and values: an `object_pairs_hook` of `json`.

    Raises DuplicateKeyError if a key is repeated.
    """
    document = dict(pairs)
    if len(document) != len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise DuplicateKeyError(f"the key {key[:40]!r} occurs twice in an object")
            keys.add(key)
    return document


def refuse_constant(name: str) -> Any:
    """Refuse NaN and infinities: a `parse_constant` for documents that must not have them."""
    raise ValueError(f"{name} is no JSON number")
