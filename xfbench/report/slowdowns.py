"""The report's tables of slowdown, as texts: over networks, against the best of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xfbench.analysis.leaderboard import Table
from xfbench.analysis.slowdown import slowdowns
from xfbench.layout import slowdown_tables as tables

MOST = 20  # tables that are shown
_MOST_NOTES = 12


@dataclass(frozen=True)
class Field:
    """A slowdown, or a word for why there is none, and what it was reached with."""

    text: str
    setting: str


@dataclass(frozen=True)
class Shown:
    """One table. `lines` have a name and a field for each of `headers` but the first."""

    title: str
    headers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Field, ...]], ...]
    notes: tuple[str, ...]


def shown(boards: Iterable[Table]) -> list[Shown]:
    """Those in which there is anything to compare."""
    found = []
    for table in slowdowns(boards, with_ranks=False):
        if len([line for line in table.lines if any(one.slowdown for one in line.entries)]) < 2:
            continue
        lines = []
        for line in table.lines:
            texts = tables.row_texts(table, line)[1:]
            settings = [
                tables.describe_setting(one.row, line) if one.slowdown else ""
                for one in line.entries
            ]
            settings += [""] * (len(texts) - len(settings))  # the mean has none
            fields = [Field(text, how) for text, how in zip(texts, settings, strict=True)]
            lines.append((line.name, tuple(fields)))
        notes = list(tables.notes(table))
        left = len(notes) - _MOST_NOTES
        notes[_MOST_NOTES:] = [f"and {left} more"] if left > 0 else []
        headers = tuple(tables.headers(table))
        found.append(Shown(table.title, headers, tuple(lines), tuple(notes)))
    return found
