"""Rows of leaderboards as JSON texts, which the index keeps until their records change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from pydantic import ConfigDict, TypeAdapter

from xfbench.analysis.leaderboard import Heading, Row
from xfbench.analysis.profiles import PROFILE_PREFIX
from xfbench.model.record import Record
from xfbench.statistics import Block

_Rows = list[tuple[Heading, Row]]
# JSON objects cannot have blocks as keys.
_Speeds = list[tuple[str, int, int, int, float]]


@cache
def _texts() -> TypeAdapter[list[tuple[Heading, Row, _Speeds]]]:
    """Return the converter of rows, with their speeds apart. It takes long to build."""
    return TypeAdapter(
        list[tuple[Heading, Row, _Speeds]], config=ConfigDict(ser_json_inf_nan="constants")
    )


def depends_on_networks(record: Record) -> bool:
    """Return whether the row of a record also depends on the networks that are installed."""
    phases = record.measurement.phases if record.measurement else ()
    return bool(record.communication) or any(name.startswith(PROFILE_PREFIX) for name in phases)


def encode(rows: Iterable[tuple[Heading, Row]]) -> str:
    """Return rows as a text."""
    values = [
        (heading, replace(row, speeds={}), [(*block, speed) for block, speed in row.speeds.items()])
        for heading, row in rows
    ]
    return _texts().dump_json(values).decode()


def decode(text: str) -> _Rows | None:
    """Return the rows that `encode` encoded, or None if `text` has no rows."""
    try:
        values = _texts().validate_json(text)
    except ValueError:
        return None
    rows = []
    for heading, row, speeds in values:
        speeds_by_block = {
            Block(session, seed, launch, repetition): speed
            for session, seed, launch, repetition, speed in speeds
        }
        rows.append((heading, replace(row, speeds=speeds_by_block)))
    return rows
