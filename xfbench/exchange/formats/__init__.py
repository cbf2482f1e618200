"""Files of other tools, whose figures become records: one module here for each format.

A module names its tool (`TOOL`), tells whether a file has its format (`is_recognised`), which
private names the file holds (`private_names`) and its entries (`entries`). A figure that the file
does not state is left out. `importers.py` keeps names of hosts and users out of records.
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
    """A file's bytes, and the JSON value that they are; None where they are none."""

    content: bytes
    document: Any


@dataclass(frozen=True)
class Entry:
    """One figure of a file, `where` in it, and when it was measured (RFC 3339).

    `title` is the tool, its version and what else tells one file from another; the rest as in
    `Figure`, `about` by the names of `About`. `failed` says why it does not count.
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
    """An entry that gives no record; `fault`: though it has, or should have, a figure."""

    where: str
    why: str
    fault: bool = True


class Format(Protocol):
    """What each module is."""

    TOOL: str

    def is_recognised(self, file: File) -> bool:
        """Whether the file is of this format, by its content."""

    def private_names(self, file: File) -> Iterable[str]:
        """Names of hosts and users that are in it."""

    def entries(self, file: File) -> Iterator[Entry | Missed]:
        """What is in it, in its order. Raises ValueError where the whole is not what it should."""


def load_formats() -> list[Format]:
    """Every format there is, in order of its module's name."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return [cast(Format, importlib.import_module(f"{__name__}.{name}")) for name in names]


def parse_number(value: Any) -> float | None:
    """The finite number that a JSON value is; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def parse_count(value: Any) -> int | None:
    """The whole number of one or more that a JSON value is; else None."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and 1 <= value < 2**53 else None


def parse_text(value: Any) -> str | None:
    """The text that a JSON value is, if there is any; else None."""
    return value if isinstance(value, str) and value else None


def as_object(value: Any) -> dict[str, Any]:
    """The JSON object that a value is; else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The JSON array that a value is; else an empty one."""
    return value if isinstance(value, list) else []


def parse_time(value: Any) -> str | None:
    """A time in ISO 8601, or in seconds since 1970, as records have it; None where it is none."""
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


def known_names(values: Mapping[str, Any]) -> dict[str, str]:
    """The network and the framework that `values` name by these words, where they are ours."""
    from xfbench.model import adapter
    from xfbench.workloads import workloads

    supported_names = {"workload": workloads(), "framework": adapter.list_names()}
    return {
        name: values[name]
        for name in supported_names
        if parse_text(values.get(name)) in supported_names[name]
    }
