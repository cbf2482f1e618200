"""Fitting a table to a width: choice of its columns, or split into several tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

HEADER_PADDING = 2  # tabulate makes each header at least so much wider
# The columns that always stay, and those that are left out last, most important first.
_ALWAYS_SHOWN = ("rank", "framework", "images/s", "launches")
# Columns that are neither here nor below come next: those of a view, and those of groups.
_DETAILS = (
    *("efficiency", "of best", "ranks", "threads", "kernel", "differs", "best of"),
    *("format", "reader", "medium", "page cache", "allocator", "memory limit", "checkpoints"),
    *("test acc.", "notes", "CPUs busy", "sustained", "version", "of peak"),
)
# Settings. If they are equal in all rows, they belong to the whole table. Results never do.
SETTINGS = (
    *("framework", "version", "kernel", "ranks", "threads", "format", "reader", "medium"),
    *("page cache", "checkpoints", "memory limit", "allocator", "nodes"),
)
# Rows with equal results are still told apart by these.
_IDENTIFYING = (*SETTINGS, "differs")


@dataclass(frozen=True)
class Fit:
    """The columns of a table that fit a width.

    - `shown`: names of the columns, in the order of the table.
    - `common`: name and text of each column that is in the heading, because all rows agree.
    - `left_out`: names of the columns that do not fit, in the order of the table.
    """

    shown: tuple[str, ...]
    common: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]


def fit_columns(
    texts: Mapping[str, Sequence[str]],
    max_width: float,
    gap: float,
    measure: Callable[[str], float] = len,
    header_padding: int = HEADER_PADDING,
) -> Fit:
    """Return the columns that fit in `max_width` characters, the most important ones first.

    - `texts`: the text of each row, by column. All columns have the same number of rows.
    - `gap`: number of characters that a column needs beside its texts.
    - `measure`: function that returns the width of a text. Widths may have another unit, such as
      points.
    - `header_padding`: what a header needs beside its text.

    Settings that are equal in two or more rows go to the heading. The columns of _ALWAYS_SHOWN
    are shown even if they do not fit. Next come the columns that tell rows apart.
    """
    common = {
        name: column[0]
        for name, column in texts.items()
        if len(column) > 1 and len(set(column)) == 1 and name in SETTINGS
    }
    widths = {
        name: gap + max(measure(name) + header_padding, *map(measure, column))
        for name, column in texts.items()
        if name not in common
    }
    shown: set[str] = set()
    telling_apart = {*_ALWAYS_SHOWN, *_list_telling_apart(texts)}
    for name in sorted(widths, key=lambda each: (each not in telling_apart, _importance_key(each))):
        total = widths[name] + sum(widths[shown_name] for shown_name in shown)
        if total <= max_width + gap or name in _ALWAYS_SHOWN:
            shown.add(name)
    return Fit(
        tuple(name for name in widths if name in shown),
        tuple((name, text) for name, text in common.items() if text != "–"),
        tuple(name for name in widths if name not in shown),
    )


def _list_telling_apart(texts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns that tell the rows apart.

    A setting is among them if it tells rows apart that are equal in the more important ones.
    """
    chosen: list[str] = []
    keys: list[tuple[str, ...]] = [() for _ in next(iter(texts.values()), ())]
    for name in sorted({*texts} & {*_IDENTIFYING}, key=_importance_key):
        longer_keys = [(*key, text) for key, text in zip(keys, texts[name], strict=True)]
        if len({*longer_keys}) > len({*keys}):
            chosen.append(name)
            keys = longer_keys
    return chosen


def split_columns(
    columns: Sequence[Sequence[str]],
    max_width: float | None,
    gap: float,
    key_count: int = 1,
    measure: Callable[[str], float] = len,
    header_padding: int = HEADER_PADDING,
) -> list[list[int]]:
    """Return the numbers of the columns of each table into which a wide table is split.

    - `columns`: the texts of each column; the first text is the header.
    - `max_width`: maximum length of a line in characters; None: there is no maximum.
    - `gap`: number of characters that a column needs beside its texts.
    - `key_count`: number of first columns that each of the tables repeats.
    - `measure`, `header_padding`: see `fit_columns`.

    A table has at least one column that it does not repeat, even if this one does not fit.
    """
    keys = list(range(key_count))
    if max_width is None:
        return [list(range(len(columns)))]
    widths = [
        gap + max(measure(head) + header_padding, *map(measure, body)) for head, *body in columns
    ]
    groups: list[list[int]] = [keys]
    for number in range(key_count, len(columns)):
        total = sum(widths[n] for n in (*groups[-1], number))
        if total >= max_width and len(groups[-1]) > key_count:
            groups.append(keys)
        groups[-1] = [*groups[-1], number]
    return groups


def wrap_columns(
    columns: Mapping[str, Sequence[str]],
    less_important: Sequence[str],
    max_width: int | None,
    gap: int = 2,
    min_widths: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return the widths of the columns of a listing, if the widest ones are wrapped until all fit.

    - `columns`: the texts of each column, by header.
    - `less_important`: columns that are left out if lines would be too long without breaking
      words, the first ones first.
    - `max_width`: maximum length of a line in characters; None: there is no maximum.
    - `gap`: number of characters between two columns.
    - `min_widths`: width to which a column may be wrapped although it has longer words, by header.

    If lines are still too long, they stay so.
    """
    widths = {name: max([_header_width(name), *map(len, texts)]) for name, texts in columns.items()}
    least = {
        name: min(widths[name], min_widths[name])
        if name in min_widths
        else max([_header_width(name), *(len(word) for text in texts for word in text.split())])
        for name, texts in columns.items()
    }
    if max_width is None:
        return widths

    def total(some: Mapping[str, int]) -> int:
        return sum(some.values()) + gap * (len(some) - 1)

    for name in less_important:
        if total(least) > max_width:
            del least[name]
    widths = {name: widths[name] for name in least}
    while total(widths) > max(max_width, total(least)):
        widest = max(widths, key=lambda name: (widths[name] > least[name], widths[name]))
        widths[widest] -= 1
    return widths


def _header_width(name: str) -> int:
    """Return the width of a header, which may have several lines."""
    return max(map(len, name.split("\n"))) + HEADER_PADDING


def _importance_key(name: str) -> tuple[int, int]:
    """Return a sort key: a smaller one for a more important column."""
    if name in _ALWAYS_SHOWN:
        return 0, 0
    return (2, _DETAILS.index(name)) if name in _DETAILS else (1, 0)
