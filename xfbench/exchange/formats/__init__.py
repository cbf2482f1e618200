"""Readers of other tools' files. xfbench imports each figure in such a file as a record.

A figure is a number that the other tool measured, such as a duration. Each file format has a module
with the interface `Format`. If a file does not state a field, the field is omitted. `importing.py`
removes the names of hosts and users, so that no record contains them.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, cast


@dataclass(frozen=True)
class File:
    """A file to import.

    `content` has its bytes. `document` is its JSON value, or None if the file is not JSON.
    """

    content: bytes
    document: Any


@dataclass(frozen=True)
class Entry:
    """A figure in a file of another tool.

    - `title`: description of the file, such as the tool with its version, or the submitter.
    - `where`: place of the figure in the file.
    - `created`: time of the measurement (RFC 3339).
    - `about`: what was measured, such as workload, framework and threads. The keys are the fields
      of `xfbench.model.external_record.About`.
    - `failed`: why the run or the test failed, or None if it succeeded.

    The other fields are those of `xfbench.model.external_record.Figure`.
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
    """A place in a file from which no record can be made.

    - `where`: the place in the file.
    - `why`: why no record can be made.
    - `fault`: true if a figure is missing or invalid, false if no figure was expected there.
    """

    where: str
    why: str
    fault: bool = True


class Format(Protocol):
    """The interface of the module of a file format. `TOOL` is the name of the other tool."""

    TOOL: str

    def is_recognised(self, file: File) -> bool:
        """Return whether the file has this format."""

    def host_and_user_names(self, file: File) -> Iterable[str]:
        """Return the names of hosts and users in the file."""

    def entries(self, file: File) -> Iterator[Entry | Missed]:
        """Yield an Entry for each figure, and a Missed for each place without a usable figure.

        Raises ValueError if the file is invalid.
        """


def load_formats() -> list[Format]:
    """Return the modules of all formats, sorted by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return [cast(Format, importlib.import_module(f"{__name__}.{name}")) for name in names]


# The text of a number. A comma, a unit or a per cent sign would leave its meaning open.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_SHOWN_CHARACTERS = 40


def parse_number(value: Any) -> float | None:
    """Return a JSON value as a float, or None if it is not a finite number.

    The value may be a text such as "123.4".
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip(" ")):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def parse_positive_integer(value: Any) -> int | None:
    """Return a JSON value if it is an integer from 1 to 2**53 - 1, otherwise None.

    The value may be a text such as "256".
    """
    if isinstance(value, str) and re.fullmatch("[0-9]{1,16}", value):
        value = int(value)
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and 1 <= value < 2**53 else None


def quote_value(value: Any) -> str:
    """Return the beginning of a JSON value in quotes, to say what is not a number."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")


def keep_nonempty_text(value: Any) -> str | None:
    """Return a JSON value if it is non-empty text, otherwise None."""
    return value if isinstance(value, str) and value else None


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON value if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a JSON value if it is an array, otherwise an empty array."""
    return value if isinstance(value, list) else []


def list_keys(value: Any) -> str:
    """Return the keys of a JSON object as a text, to say what a file has."""
    return ", ".join(as_object(value)) or "no keys"


def parse_time(value: Any) -> str | None:
    """Return a time as records state it (RFC 3339, UTC), or None if `value` is not a time.

    `value` is an ISO 8601 text, or a number of seconds since 1970. A text without a time zone is
    taken as UTC.
    """
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
    """Return `workload` and `framework` from `values`, each only if xfbench supports its value."""
    from xfbench.model import adapter
    from xfbench.workloads import workloads

    supported_names = {"workload": workloads(), "framework": adapter.list_names()}
    return {
        name: values[name]
        for name in supported_names
        if keep_nonempty_text(values.get(name)) in supported_names[name]
    }
