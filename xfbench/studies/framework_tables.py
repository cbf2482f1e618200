"""The table of a comparison of frameworks: a row for each framework, a column for each network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xfbench.base.wording import pluralize
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Value
from xfbench.studies.wording import (
    format_bounds_without_unit,
    format_number_without_unit,
    join_words,
)

_ROW_SETTINGS = ("framework", "kernel")
_Place = tuple[str, str]  # row and column of a field

Table = tuple[tuple[str, ...], ...]


def build_framework_table(
    pairs: Sequence[tuple[MeasuredCell, MeasuredCell | None]],
    values: Sequence[Value],
    baseline_word: str,
) -> tuple[Table, tuple[str, ...]]:
    """Return the table of the ratios, with the headers as its first row, and the notes below it.

    - `pairs`: each cell with its baseline.
    - `values`: the ratio of each pair.
    - `baseline_word`: what a baseline is called in its field, such as "best".

    Frameworks with several kernel libraries have a row for each of these.
    """
    cells = list(dict.fromkeys(cell for pair in pairs for cell in pair if cell))
    places = {cell: (_row_name(cell), _column_name(cell, cells)) for cell in cells}
    fields: dict[_Place, str] = {}
    launches: dict[_Place, str] = {}
    notes: dict[_Place, str] = {}
    for (cell, baseline), value in zip(pairs, values, strict=True):
        place = places[cell]
        fields[place] = _ratio_text(value)
        if value.interval:
            count = pluralize(value.interval.launches, "launch")
            launches[place] = f"{count} ({value.label})"
        # A note says what the baseline is, which the table shows, and then whether runs diverged.
        if note := value.reason or value.note.partition("; ")[2]:
            notes[place] = note
        if baseline:
            fields[places[baseline]] = f"1 ({baseline_word})"
    if not any(value.interval for value in values):
        return (), ()
    has_bounds = any(value.interval and value.interval.low is not None for value in values)
    bounds_note = ["in brackets: 95 % interval"] if has_bounds else []
    columns = list(dict.fromkeys(column for _, column in places.values()))
    rows = sorted({row for row, _ in places.values()})
    return (
        ("framework", *columns),
        *((row, *(fields.get((row, column), "–") for column in columns)) for row in rows),
    ), (*bounds_note, *_launch_notes(launches), *_notes_by_text(notes))


def _row_name(cell: MeasuredCell) -> str:
    names = [str(cell.setting(name)) for name in _ROW_SETTINGS]
    return " · ".join(names)


def _column_name(cell: MeasuredCell, cells: Sequence[MeasuredCell]) -> str:
    return of_cells.cell_name(cell, cells, _ROW_SETTINGS)


def _ratio_text(value: Value) -> str:
    if value.interval is None:
        return "–"
    number = format_number_without_unit(value.interval.value, "times")
    bounds = format_bounds_without_unit(value.interval, "times")
    return number if bounds == "–" else f"{number} ({bounds})"


def _launch_notes(launches: Mapping[_Place, str]) -> Iterable[str]:
    """Return how many launches the ratios have: one note if all agree, else one for each number."""
    if len(set(launches.values())) == 1:
        return [f"each ratio has {text}" for text in set(launches.values())]
    return _notes_by_text(launches)


def _notes_by_text(texts: Mapping[_Place, str]) -> Iterable[str]:
    """Return a note for each text, which names the places that have it."""
    places: dict[str, list[str]] = {}
    for (row, column), text in texts.items():
        places.setdefault(text, []).append(f"{row} in {column}")
    return [f"{join_words(names)}: {text}" for text, names in places.items()]
