"""Whether xfbench measured a record, and which fields of other records are trusted.

A record states its own source. A valid digest does not prove that this statement is true. If the
source is not xfbench, all fields that only a launch can fill are dropped. If a measured record has
an impossible number, all its measurements are dropped.
"""

from __future__ import annotations

from types import NoneType
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
# The limits are beyond any real number of bytes, seconds or operations.
_LIMITS = (0.0, 1e21)
_LIMITS_BY_FIELD = {
    **dict.fromkeys(
        ("losses", "train_loss", "test_loss", "exposed_seconds", "waiting_seconds", "phases"),
        (-1e100, 1e100),
    ),
    **dict.fromkeys(  # other numbers are divided by these
        (
            *("seconds", "step_seconds", "save_seconds", "load_seconds", "wall_seconds"),
            *("matrix_product", "matrix_product_tries", "cores"),
        ),
        (1e-12, 1e21),
    ),
}
_NUMBER_TYPES = frozenset({int, float, bool})
_LEAF_TYPES = _NUMBER_TYPES | {str, NoneType}


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
    for name in _FIELDS_WITH_NUMBERS:
        if error := _find_impossible_number(getattr(record, name)):
            return error
    checkpoints, measurement = record.checkpoints, record.measurement
    if checkpoints and not (checkpoints.save_seconds and checkpoints.load_seconds):
        return "the checkpoints took no time"
    if checkpoints and measurement and checkpoints.wall_seconds > measurement.wall_seconds:
        return "the checkpoints took longer than the launch"
    return None


def _find_impossible_number(value: Any, field_name: str = "") -> str | None:
    """Return which number in `value` is impossible, in one line; None if all are possible.

    `value` is searched with all nested models, dictionaries and lists. `field_name` is the name of
    the field that has `value`. The loop over the fields of a model skips most values, because every
    launch of a table is searched.
    """
    if isinstance(value, BaseModel):
        for name, field_value in value.__dict__.items():
            kind = type(field_value)
            if kind in _LEAF_TYPES and kind not in _NUMBER_TYPES:
                continue
            low, high = _LIMITS_BY_FIELD.get(name, _LIMITS)
            if kind in _NUMBER_TYPES and low <= field_value <= high:
                continue
            if error := _find_impossible_number(field_value, name):
                return error
        return None
    if isinstance(value, dict):
        value = tuple(value.values())
    elif type(value) in _LEAF_TYPES:
        value = (value,)
    numbers = [element for element in value if type(element) in _NUMBER_TYPES]
    if numbers:
        low, high = _LIMITS_BY_FIELD.get(field_name, _LIMITS)
        smallest, largest = min(numbers), max(numbers)
        if not (low <= smallest and largest <= high):
            # An integer may be too large to format as a float.
            impossible = str(smallest if smallest < low else largest)[:20]
            return f"{field_name} of {impossible}, which is impossible"
    for element in value:
        if type(element) in _LEAF_TYPES:
            continue
        if error := _find_impossible_number(element, field_name):
            return error
    return None
