"""Whether xfbench measured a record, and which fields of other records are trusted.

A record states its own source. A valid digest does not prove that this statement is true. If the
source is not xfbench, all fields that only a launch can fill are dropped. If a measured record has
an impossible number, all its measurements are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from xfbench.model.record import Record

_FIELDS_OF_ANY_SOURCE = (
    *("id", "cell", "created", "source", "citation", "figure", "status", "reason"),
    *("request", "workload", "machine"),
)

_MEASURED_FIELDS = (
    *("measurement", "learning", "communication", "checkpoints", "storage", "limit"),
    "conditions",
)
_FIELDS_WITH_NUMBERS = ("request", "workload", "machine", "observed", *_MEASURED_FIELDS)
# Larger than any real number of bytes, seconds or operations.
_MAX_NUMBER, _MAX_SIGNED_NUMBER = 1e21, 1e100
_SIGNED_FIELDS = (
    "losses",
    "train_loss",
    "test_loss",
    "exposed_seconds",
    "waiting_seconds",
    "phases",
)
_DIVISOR_FIELDS = (
    *("seconds", "step_seconds", "save_seconds", "load_seconds", "wall_seconds"),
    *("matrix_product", "matrix_product_tries", "cores"),
)
_MIN_DIVISOR = 1e-12


def unmeasured_source(record: Record) -> str | None:
    """Return the record's source in one line if xfbench did not measure it, else None."""
    if record.source == "measured":
        return None
    citation = record.citation
    return f"{record.source}: {f'{citation.key}, ' if citation else ''}not measured by xfbench"


def drop_untrusted_or_impossible_fields(record: Record) -> Record:
    """Return the record with only its trusted fields.

    - If xfbench did not measure the record, all fields that only a launch can fill are dropped.
      Other fields, such as the request, the figure and the citation, are kept.
    - If a measured record has an impossible number, its measurements are dropped. If its status is
      "ok", the status becomes "invalid".
    - Any other record is returned unchanged.
    """
    if record.source == "measured":
        error = impossible_number(record)
        updates: dict[str, Any] = dict.fromkeys(_MEASURED_FIELDS)
        if record.status == "ok":
            updates |= {"status": "invalid", "reason": error}
        return record.model_copy(update=updates) if error else record
    kept_fields = {*_FIELDS_OF_ANY_SOURCE, "schema_"}
    return record.model_copy(
        update={name: None for name in Record.model_fields if name not in kept_fields}
    )


def impossible_number(record: Record) -> str | None:
    """Return why a number of the record is impossible, in one line; None if all are possible."""
    parts = [getattr(record, name) for name in _FIELDS_WITH_NUMBERS]
    for name, smallest, largest in _smallest_and_largest_number_by_field(parts):
        if name in _SIGNED_FIELDS:
            lower_limit, upper_limit = -_MAX_SIGNED_NUMBER, _MAX_SIGNED_NUMBER
        else:
            lower_limit, upper_limit = _MIN_DIVISOR if name in _DIVISOR_FIELDS else 0.0, _MAX_NUMBER
        if not (lower_limit <= smallest and largest <= upper_limit):
            # An integer may be too large to format as a float.
            return (
                f"{name} of {str(smallest if smallest < lower_limit else largest)[:20]}, which "
                "is impossible"
            )
    checkpoints, measurement = record.checkpoints, record.measurement
    if checkpoints and not (checkpoints.save_seconds and checkpoints.load_seconds):
        return "the checkpoints took no time"
    if checkpoints and measurement and checkpoints.wall_seconds > measurement.wall_seconds:
        return "the checkpoints took longer than the launch"
    return None


def _smallest_and_largest_number_by_field(
    value: Any, field_name: str = ""
) -> Iterator[tuple[str, float, float]]:
    """Yield (field name, minimum, maximum) for each number and each list of numbers in `value`.

    `value` is searched with all nested models, dictionaries and lists. The minimum and maximum of a
    single number are the number itself. `field_name` is the name of the field that has `value`.
    """
    if isinstance(value, BaseModel):
        for field, nested_value in value.__dict__.items():
            yield from _smallest_and_largest_number_by_field(nested_value, field)
    elif isinstance(value, dict):
        yield from _smallest_and_largest_number_by_field(tuple(value.values()), field_name)
    elif isinstance(value, tuple | list):
        numbers = [number for number in value if isinstance(number, int | float)]
        if numbers:
            yield field_name, min(numbers), max(numbers)
        for nested_value in value:
            if isinstance(nested_value, BaseModel | tuple | list | dict):
                yield from _smallest_and_largest_number_by_field(nested_value, field_name)
    elif isinstance(value, int | float):
        yield field_name, value, value
