"""Text formats of tables: layout, escaping and digits.

A record may come from anywhere, so the texts of records are escaped in every format. `tables.py`
chooses the rows and columns.
"""

from __future__ import annotations

import csv
import html as markup
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tabulate import tabulate

from xfbench.base.terminal_text import make_legible
from xfbench.statistics import Interval

if TYPE_CHECKING:  # this takes long to import, and most tables do not need it
    from xfbench.analysis.prediction import Figure

_MAX_FIELD_CHARS = 1000  # longer fields are cut
_MARKDOWN_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|#~!&@]|://|www\.")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
_ENTITIES |= {"://": "&#58;//", "www.": "www&#46;"}  # prevents links
_LIST_START = re.compile(r"^(\d*)([-+.)])")  # the start of a list item
_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "\\": "$\\backslash$"}
_LATEX |= {"^": "\\^{}", "~": "\\~{}"}
_FORMULA_STARTS = ("=", "+", "-", "@")


@dataclass(frozen=True)
class Format:
    """The layout of a table, its heading and its notes.

    - `style`: the name of a table style of tabulate.
    - `heading`: function that returns the heading in this format, escaped.
    - `note`: function that returns a note in this format, escaped.
    - `escape`: function that escapes a field, if tabulate does not. tabulate escapes fields for
      LaTeX and HTML.
    """

    style: str
    heading: Callable[[str], str]
    note: Callable[[str], str]
    escape: Callable[[str], str] = str

    def render_table(self, headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
        """Return the table with these headers and lines of fields, escaped for this format."""
        rows = [[self._escape_field_for_tabulate(field) for field in line] for line in lines]
        names = [self._escape_field_for_tabulate(name) for name in headers]
        return tabulate(rows, names, self.style, disable_numparse=True)

    def render_heading(self, text: str) -> str:
        """Return `text` as the heading of a table."""
        return self.heading(make_legible(text, _MAX_FIELD_CHARS))

    def render_note(self, text: str) -> str:
        """Return `text` as a note below a table."""
        return self.note(make_legible(text, _MAX_FIELD_CHARS))

    def _escape_field_for_tabulate(self, text: str) -> str:
        return self.escape(make_legible(text, _MAX_FIELD_CHARS))


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def _escape_markdown(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)


def _escape_list_start(match: re.Match[str]) -> str:
    return f"{match[1]}\\{match[2]}"


FORMATS = {
    "text": Format("simple", str, str),
    "markdown": Format(
        "github",
        lambda text: f"### {_escape_markdown(text)}\n",
        lambda text: f"\n{_LIST_START.sub(_escape_list_start, _escape_markdown(text.strip()))}",
        _escape_markdown,
    ),
    "latex": Format(
        "latex_booktabs",
        lambda text: f"% {text}",
        lambda text: f"\\par {_escape_latex(text)}\n",
    ),
    "html": Format(
        "html",
        lambda text: f"<h3>{markup.escape(text)}</h3>",
        lambda text: f"<p>{markup.escape(text)}</p>",
    ),
}


def renderers_by_format(render: Callable[..., str]) -> dict[str, Callable[..., str]]:
    """Return one function for each text format, by the format's name.

    Each function is `render` with its `table_format` set to that format.
    """
    return {name: partial(render, table_format=layout) for name, layout in FORMATS.items()}


def escape_csv_formula(value: object) -> object:
    """Return the value as a CSV field that neither a spreadsheet nor a terminal executes.

    A value that is not text is returned unchanged.
    """
    if not isinstance(value, str):
        return value
    text = make_legible(value, len(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def to_csv(lines_with_same_keys: Sequence[Mapping[str, object]]) -> str:
    """Return the lines as CSV, with all digits of each number.

    The keys of the first line are the column names. Texts are escaped so that no spreadsheet
    executes them.
    """
    buffer = io.StringIO()
    if lines_with_same_keys:
        writer = csv.DictWriter(buffer, list(lines_with_same_keys[0]), lineterminator="\n")
        writer.writeheader()
        for line in lines_with_same_keys:
            writer.writerow({name: escape_csv_formula(value) for name, value in line.items()})
    return buffer.getvalue()


def format_with_interval(interval: Interval | Figure | None) -> str:
    """Return the value with the ends of its interval, such as "123.4 (122.2–124.6)".

    The numbers have the digits that the interval supports: two significant digits of its
    half-width. If the half-width is more than a quarter of the value, each number has two
    significant digits. The text for None is "–".
    """
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None:
        return format_number(interval.value, 3)
    half_width = (interval.high - interval.low) / 2
    if half_width <= 1e-6 * interval.value:  # the launches differ only by rounding
        return format_number(interval.value, 6)
    if half_width > interval.value / 4:
        numbers = [format_number(n, 2) for n in (interval.value, interval.low, interval.high)]
    else:
        decimals = 1 - math.floor(math.log10(half_width))
        numbers = [
            _format_rounded(n, decimals) for n in (interval.value, interval.low, interval.high)
        ]
    return f"{numbers[0]} ({numbers[1]}–{numbers[2]})"


def format_number(value: float, significant_digits: int) -> str:
    """Return a positive number with this many significant digits and a thousands separator."""
    return _format_rounded(value, significant_digits - 1 - math.floor(math.log10(value)))


def _format_rounded(value: float, decimals: int) -> str:
    return f"{round(value, decimals):,.{max(decimals, 0)}f}".replace(",", " ")
