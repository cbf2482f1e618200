"""Tables of a study in Markdown, in lines of at most `formats.MARKDOWN_WIDTH` characters.

If a table is too wide, what makes it wide is moved out of it: remarks, rows without a value, and
the settings that all rows of a network share. If that is not enough, the rows are a list.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xfbench.base.terminal_text import MAX_LENGTH, make_legible
from xfbench.rendering import formats

_SEPARATOR = " · "  # between the settings in the name of a configuration


@dataclass(frozen=True)
class _ValueTable:
    """The parts of a table of values.

    - `headers`: the headers of the columns, without that of the remarks.
    - `rows`: the fields of each row, without its remark.
    - `remarks`: one remark for each row; "": none.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]

    def render(self, *, with_remarks: bool) -> str:
        """Return the table in Markdown."""
        if not with_remarks or not any(self.remarks):
            return formats.markdown_table(self.headers, self.rows)
        rows = [(*row, text) for row, text in zip(self.rows, self.remarks, strict=True)]
        return formats.markdown_table((*self.headers, ""), rows)

    def remark_items(self, *, over: bool) -> list[str]:
        """Return a list item for each remark. `over`: rows also have a value of a setting."""
        return [
            f"- {escape_line(_row_name(row, over=over))}: {escape_line(remark)}"
            for row, remark in zip(self.rows, self.remarks, strict=True)
            if remark
        ]

    def select(self, numbers: Sequence[int]) -> _ValueTable:
        """Return the table with only the rows of these numbers."""
        return replace(
            self,
            rows=tuple(self.rows[n] for n in numbers),
            remarks=tuple(self.remarks[n] for n in numbers),
        )


def render_value_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, over: bool
) -> list[str]:
    """Return the blocks that show a table of values.

    The first column has the configurations, the second the value of the varied setting if `over`
    is true, the last the remarks. The other columns of a row without a value are "–".
    """
    table = _ValueTable(
        tuple(headers[:-1]),
        tuple(tuple(row[:-1]) for row in rows),
        tuple(row[-1] for row in rows),
    )
    has_value = [row[1 + over] != "–" for row in rows]
    measured = table.select([n for n, is_measured in enumerate(has_value) if is_measured])
    unmeasured = table.select([n for n, is_measured in enumerate(has_value) if not is_measured])
    common_remark = ""
    if len({*measured.remarks}) == 1 < len(measured.rows):
        common_remark = measured.remarks[0]
        remarks = ("" if text == common_remark else text for text in table.remarks)
        table = replace(table, remarks=tuple(remarks))
        measured = replace(measured, remarks=("",) * len(measured.rows))
    lists = [unmeasured.remark_items(over=over)]
    attempts: list[tuple[list[str], list[list[str]]]] = [([table.render(with_remarks=True)], [])]
    if measured.rows:
        items = measured.remark_items(over=over)
        attempts += [
            ([measured.render(with_remarks=True)], lists),
            (_render_by_network(measured, with_remarks=True), lists),
            ([measured.render(with_remarks=False)], [items, *lists]),
            (_render_by_network(measured, with_remarks=False), [items, *lists]),
        ]
    for blocks, below in attempts:
        if all(formats.fits_markdown(block) for block in blocks):
            note = [f"All rows: {escape_line(common_remark)}."] if common_remark else []
            return [
                *blocks,
                *note,
                *itertools.chain(*below),
            ]
    return [_render_list(headers, rows)]


def render_table_or_list(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as a table, or as a list if the lines of the table would be too long."""
    table = formats.markdown_table(headers, rows)
    return table if formats.fits_markdown(table) else _render_list(headers, rows)


def escape_line(text: str) -> str:
    """Return `text` as one legible line of Markdown, of at most about MAX_LENGTH characters."""
    return formats.FORMATS["markdown"].escape_field(make_legible(text, MAX_LENGTH))


def _render_by_network(table: _ValueTable, *, with_remarks: bool) -> list[str]:
    """Return a table for each network, below the settings that all its rows share.

    The network is the first setting in the name of a configuration.
    """
    settings = [row[0].split(_SEPARATOR) for row in table.rows]
    blocks = []
    for network in dict.fromkeys(names[0] for names in settings):
        numbers = [n for n, names in enumerate(settings) if names[0] == network]
        shared = [
            name for name in settings[numbers[0]] if all(name in settings[n] for n in numbers)
        ]
        rows = tuple(
            (
                _SEPARATOR.join(name for name in settings[n] if name not in shared) or "–",
                *table.rows[n][1:],
            )
            for n in numbers
        )
        part = replace(table.select(numbers), rows=rows)
        blocks += [
            f"{escape_line(_SEPARATOR.join(shared))}:",
            part.render(with_remarks=with_remarks),
        ]
    return blocks


def _render_list(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a list item for each row. Fields after the first follow their header."""
    items = []
    for row in rows:
        fields = [
            f"{name} {text}".strip()
            for name, text in zip(headers[1:], row[1:], strict=True)
            if text not in ("", "–")
        ]
        items.append(": ".join(filter(None, (escape_line(row[0]), escape_line("; ".join(fields))))))
    return formats.join_markdown_blocks(f"- {item}" for item in items)


def _row_name(row: Sequence[str], *, over: bool) -> str:
    return ", ".join(row[: 1 + over])
