"""Files of other tools whose figures become records; one module per format.

A module states its tool (`TOOL`) and whether it recognises a file (`is_recognised`). It also
returns the private names in the file (`private_names`) and its entries (`entries`). A figure that
the file does not state is omitted. `importing.py` keeps names of hosts and users out of records.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, cast


@dataclass(frozen=True)
class File:
    """A file's bytes, and their JSON value, or None if they are not JSON."""

    content: bytes
    document: Any


@dataclass(frozen=True)
class Entry:
    """A figure of a file, its place in the file (`where`), and its time (RFC 3339).

    `title` is the tool, its version and what else distinguishes the file. `about` has the fields of
    `About`, and the other fields are those of `Figure`. `failed` is why the figure does not count.
    """

    title: str
    where: str
    created: str
    quantity: str
    unit: str
    value: float
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    failed: str | None = None


@dataclass(frozen=True)
class Missed:
    """An entry that becomes no record. `fault` is true if the entry has or should have a figure."""

    where: str
    why: str
    fault: bool = True


class Format(Protocol):
    """The interface of each format's module."""

    TOOL: str

    def is_recognised(self, file: File) -> bool:
        """Return whether the content has this format."""

    def private_names(self, file: File) -> Iterable[str]:
        """Return the names of hosts and users in the file."""

    def entries(self, file: File) -> Iterator[Entry | Missed]:
        """Yield the entries in order. Raises ValueError if the file is invalid."""


def load_formats() -> list[Format]:
    """Return every format, in the order of module names."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return [cast(Format, importlib.import_module(f"{__name__}.{name}")) for name in names]


def parse_number(value: Any) -> float | None:
    """Return a JSON value as a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def parse_positive_integer(value: Any) -> int | None:
    """Return a JSON value as an integer of one or more, or None."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and 1 <= value < 2**53 else None


def parse_text(value: Any) -> str | None:
    """Return a JSON value as non-empty text, or None."""
    return value if isinstance(value, str) and value else None


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object, or an empty one for another value."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a JSON array, or an empty one for another value."""
    return value if isinstance(value, list) else []


def parse_time(value: Any) -> str | None:
    """Return an ISO 8601 time, or seconds since 1970, as records state it, or None."""
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
        else:
            seconds = parse_number(value)
            if seconds is None:
                return None
            parsed = datetime.fromtimestamp(seconds, UTC)
        aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        formatted = aware.astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return formatted.replace("+00:00", "Z")


def supported_workload_and_framework(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of `workload` and `framework` that xfbench supports."""
    from xfbench.model import adapter
    from xfbench.workloads import workloads

    supported_names = {"workload": workloads(), "framework": adapter.list_names()}
    return {
        name: values[name]
        for name in supported_names
        if parse_text(values.get(name)) in supported_names[name]
    }
