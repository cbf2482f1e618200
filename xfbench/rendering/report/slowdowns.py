"""The slowdown tables of the report as texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xfbench.analysis.leaderboard import Table
from xfbench.analysis.slowdown import build_slowdown_tables
from xfbench.rendering import slowdown_tables as tables

MAX_TABLES = 20  # shown tables
_MAX_NOTES = 12


@dataclass(frozen=True)
class Field:
    """A field of a slowdown table.

    - `text`: the slowdown, or a word that says why there is none.
    - `setting`: the configuration that was measured, in words; "" without a slowdown.
    """

    text: str
    setting: str


@dataclass(frozen=True)
class SlowdownTable:
    """A slowdown table as texts.

    `lines` has pairs: the name of the line, and its fields. The fields belong to the headers after
    the first one.
    """

    title: str
    headers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Field, ...]], ...]
    notes: tuple[str, ...]


def build_tables(boards: Iterable[Table]) -> list[SlowdownTable]:
    """Return the slowdown tables of these leaderboards as texts.

    A table is left out if fewer than two of its lines have a slowdown.
    """
    shown_tables = []
    for table in build_slowdown_tables(boards, with_leaderboard_ranks=False):
        if len([line for line in table.lines if any(entry.slowdown for entry in line.entries)]) < 2:
            continue
        lines = []
        for line in table.lines:
            texts = tables.row_texts(table, line)[1:]
            settings = [
                tables.describe_settings_outside_group(entry.row, line) if entry.slowdown else ""
                for entry in line.entries
            ]
            settings += [""] * (len(texts) - len(settings))  # the means have no setting
            fields = [Field(text, setting) for text, setting in zip(texts, settings, strict=True)]
            lines.append((line.name, tuple(fields)))
        notes = list(tables.notes_under_table(table))
        omitted = len(notes) - _MAX_NOTES
        notes[_MAX_NOTES:] = [f"and {omitted} more"] if omitted > 0 else []
        headers = tuple(tables.headers(table))
        shown_tables.append(SlowdownTable(table.title, headers, tuple(lines), tuple(notes)))
    return shown_tables
