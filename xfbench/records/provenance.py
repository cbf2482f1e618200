"""Whether a record was measured by xfbench, and what of others' records is taken for true.

A record says of itself where it is from, and its digest holds for whatever it says. So nothing
that only a launch of ours can show is believed of one that says it is no such launch, and no
number that no launch has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from xfbench.records.record import Record

_OF_ANY_SOURCE = (
    *("id", "cell", "created", "source", "citation", "figure", "status", "reason"),
    *("request", "workload", "machine"),
)

_MEASURED = (
    *("measurement", "learning", "communication", "checkpoints", "storage", "limit"),
    "conditions",
)
_NUMBERED = ("request", "workload", "machine", "observed", *_MEASURED)
_MOST, _MOST_SIGNED = 1e21, 1e100  # more bytes, seconds or operations than there are anywhere
_ANY_SIGN = ("losses", "train_loss", "test_loss", "exposed_seconds", "waiting_seconds", "phases")
_DIVIDED_BY = (
    *("seconds", "step_seconds", "save_seconds", "load_seconds", "wall_seconds"),
    *("matrix_product", "cores"),
)
_LEAST = 1e-12


def not_measured(record: Record) -> str | None:
    """Where the record is from, in a line, if nobody measured it with xfbench; None if one did."""
    if record.source == "measured":
        return None
    cited = record.citation
    return f"{record.source}: {f'{cited.key}, ' if cited else ''}not measured by xfbench"


def as_told(record: Record) -> Record:
    """What is taken for true of a record, ours or others', whatever it says.

    One from elsewhere is left without all that only a launch of ours can show: with what it says
    was asked for, its figure and where that is from. One with a number that no launch has is
    without what was measured, and invalid if it passes for a good one.
    """
    if record.source == "measured":
        wrong = impossible(record)
        told: dict[str, Any] = dict.fromkeys(_MEASURED)
        if record.status == "ok":
            told |= {"status": "invalid", "reason": wrong}
        return record.model_copy(update=told) if wrong else record
    kept = {*_OF_ANY_SOURCE, "schema_"}
    return record.model_copy(
        update={name: None for name in Record.model_fields if name not in kept}
    )


def impossible(record: Record) -> str | None:
    """The first number of a launch that none can have, in a line; None where all may be so."""
    parts = [getattr(record, name) for name in _NUMBERED]
    for name, least, most in _ranges(parts):
        if name in _ANY_SIGN:
            low, high = -_MOST_SIGNED, _MOST_SIGNED
        else:
            low, high = _LEAST if name in _DIVIDED_BY else 0.0, _MOST
        if not (low <= least and most <= high):
            # Whole numbers may be too large to be written as others are.
            return f"{name} of {str(least if least < low else most)[:20]}, which no launch has"
    taken, measured = record.checkpoints, record.measurement
    if taken and not (taken.save_seconds and taken.load_seconds):
        return "checkpoints that took no time"
    if taken and measured and taken.wall_seconds > measured.wall_seconds:
        return "checkpoints that took longer than the launch"
    return None


def _ranges(value: Any, name: str = "") -> Iterator[tuple[str, float, float]]:
    """Each number's name, and the least and largest of those that have it together."""
    if isinstance(value, BaseModel):
        for field, inner in value.__dict__.items():
            yield from _ranges(inner, field)
    elif isinstance(value, dict):
        yield from _ranges(tuple(value.values()), name)
    elif isinstance(value, tuple | list):
        numbers = [one for one in value if isinstance(one, int | float)]
        if numbers:
            yield name, min(numbers), max(numbers)
        for inner in value:
            if isinstance(inner, BaseModel | tuple | list | dict):
                yield from _ranges(inner, name)
    elif isinstance(value, int | float):
        yield name, value, value
