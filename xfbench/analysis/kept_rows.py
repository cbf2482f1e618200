"""Rows of leaderboards as JSON texts, which the index keeps until their records change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pydantic import ConfigDict, TypeAdapter

from xfbench.analysis.leaderboard import Heading, Row
from xfbench.statistics import Block

_Rows = list[tuple[Heading, Row]]
# JSON objects cannot have blocks as keys.
_Speeds = list[tuple[str, int, int, int, float]]
_TEXTS = TypeAdapter(
    list[tuple[Heading, Row, _Speeds]], config=ConfigDict(ser_json_inf_nan="constants")
)


def encode(rows: Iterable[tuple[Heading, Row]]) -> str | None:
    """Return rows as a text, or None if they must not be kept.

    Rows with profiles or with communication are not kept, because they also depend on the networks
    that are installed.
    """
    rows = [*rows]
    if any(row.profile or row.communication for _, row in rows):
        return None
    return _TEXTS.dump_json(
        [
            (
                heading,
                replace(row, speeds={}),
                [(*block, speed) for block, speed in row.speeds.items()],
            )
            for heading, row in rows
        ]
    ).decode()


def decode(text: str) -> _Rows:
    """Return the rows that `encode` encoded. Raises ValueError if `text` has no rows."""
    rows = []
    for heading, row, speeds in _TEXTS.validate_json(text):
        speeds_by_block = {
            Block(session, seed, launch, repetition): speed
            for session, seed, launch, repetition, speed in speeds
        }
        rows.append((heading, replace(row, speeds=speeds_by_block)))
    return rows
