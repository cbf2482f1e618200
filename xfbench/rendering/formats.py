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
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tabulate import tabulate

from xfbench.base.terminal_text import make_legible
from xfbench.rendering import fitting
from xfbench.statistics import Interval

if TYPE_CHECKING:  # this takes long to import, and most tables do not need it
    from xfbench.analysis.prediction import Figure

MARKDOWN_WIDTH = 100  # of a line
_MAX_FIELD_CHARS = 1000  # longer fields are cut
_MARKDOWN_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|#~!&@]|://|www\.")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
_ENTITIES |= {"://": "&#58;//", "www.": "www&#46;"}  # prevents links
# The start of a list item, heading, quotation or underline of a heading.
_BLOCK_START = re.compile(r"^(\d*)([-+#>=]|(?<=\d)[.)](?=\s|$))")
_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "\\": "$\\backslash$"}
_LATEX |= {"^": "\\^{}", "~": "\\~{}"}
_LATEX |= {"[": "{[}", "]": "{]}", "*": "{*}"}  # after a line break, they would be its options
_NUMBER = r"([0-9]{1,3}(?: [0-9]{3})*(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)(%?)"
_NUMBER_WITH_BOUNDS = re.compile(rf"{_NUMBER}(?: \({_NUMBER}–{_NUMBER}\))?")
_NO_LABEL = re.compile(r"[^a-z0-9]+")
_NOTES_BELOW_TABLE = re.compile(r"\\end\{table\}\n((?:\{\\par[^\n]*\n+)+)")
_FORMULA_STARTS = ("=", "+", "-", "@")


@dataclass(frozen=True)
class Format:
    """The layout of a table, its heading and its notes.

    - `style`: the name of a table style of tabulate.
    - `heading`: function that returns the heading in this format, escaped.
    - `note`: function that returns a note in this format, escaped.
    - `escape`: function that escapes a field, if tabulate does not. tabulate escapes fields for
      LaTeX and HTML.
    - `column_gap`: number of characters that a column of a line needs beside its texts.
    - `has_lines`: whether headings and notes are read line by line, as in a terminal.
    - `names_intervals`: whether a note says what brackets are, because the table stands alone.
    """

    style: str
    heading: Callable[[str], str]
    note: Callable[[str], str]
    escape: Callable[[str], str] = str
    column_gap: int = 2
    has_lines: bool = False
    names_intervals: bool = False

    def render_table(
        self, headers: Sequence[str], lines: Sequence[Sequence[str]], title: str = ""
    ) -> str:
        """Return the table with these headers and lines of fields, escaped for this format.

        `title` is the caption, if tables of this format have one.
        """
        rows = [[self.escape_field(field) for field in line] for line in lines]
        names = [self.escape_field(name) for name in headers]
        return tabulate(rows, names, self.style, disable_numparse=True)

    def render_tables_that_fit(
        self,
        headers: Sequence[str],
        lines: Sequence[Sequence[str]],
        max_width: int | None,
        key_count: int,
        title: str,
    ) -> Iterator[str]:
        """Yield one table for each group of columns that fits, with a blank line between them.

        - `max_width`: maximum length of a line in characters; None: one table has all columns.
        - `key_count`: number of first columns that each table repeats.
        - `title`: the caption. Tables after the first have their number in it.
        """
        columns = [
            [self.escape_field(text) for text in column]
            for column in zip(headers, *lines, strict=True)
        ]
        groups = fitting.split_columns(columns, max_width, self.column_gap, key_count)
        for number, group in enumerate(groups):
            if number:
                yield ""
            yield self.render_table(
                [headers[n] for n in group],
                [[line[n] for n in group] for line in lines],
                f"{title}, part {number + 1}" if number else title,
            )

    def render_heading(self, text: str, max_width: int | None = None) -> str:
        """Return `text` as the heading of a table."""
        return self.heading(self._make_legible_and_wrap(text, max_width))

    def render_note(self, text: str, max_width: int | None = None) -> str:
        """Return `text` as a note below a table."""
        return self.note(self._make_legible_and_wrap(text, max_width))

    def join(self, parts: Sequence[str]) -> str:
        """Return headings, tables and notes as one text."""
        return "\n".join(parts)

    def _make_legible_and_wrap(self, text: str, max_width: int | None) -> str:
        """Return the text, in lines of at most `max_width` characters if the format has lines."""
        legible = make_legible(text, _MAX_FIELD_CHARS)
        if max_width is None or not self.has_lines:
            return legible
        return textwrap.fill(legible, max_width, subsequent_indent="    ")

    def escape_field(self, text: str) -> str:
        """Return a field as `render_table` passes it to tabulate."""
        return self.escape(make_legible(text, _MAX_FIELD_CHARS))


_LATEX_PREAMBLE = "% In the preamble: \\usepackage{booktabs,siunitx} \\sisetup{range-phrase=--}"


class LatexFormat(Format):
    """Tables of the packages booktabs and siunitx, with caption and label."""

    def render_table(
        self, headers: Sequence[str], lines: Sequence[Sequence[str]], title: str = ""
    ) -> str:
        """Return the table with these headers and lines of fields, and its caption.

        Columns of numbers are right-aligned.
        """
        columns = [
            [make_legible(field, _MAX_FIELD_CHARS) for field in column]
            for column in zip(*lines, strict=True)
        ]
        alignment = "".join(
            "r" if all(map(_is_number_or_missing, column)) else "l" for column in columns
        )
        caption = make_legible(title, _MAX_FIELD_CHARS)
        captioned = [
            f"\\caption{{{escape_latex(caption)}}}",
            f"\\label{{tab:{_NO_LABEL.sub('-', caption.lower()).strip('-')}}}",
        ]
        return "\n".join(
            [
                "\\begin{table}",
                "\\centering",
                *(captioned if title else []),
                f"\\begin{{tabular}}{{{alignment}}}",
                "\\toprule",
                _join_latex_fields(escape_latex(self.escape_field(name)) for name in headers),
                "\\midrule",
                *(
                    _join_latex_fields(map(_format_latex_field, row))
                    for row in zip(*columns, strict=True)
                ),
                "\\bottomrule",
                "\\end{tabular}",
                "\\end{table}",
            ]
        )

    def join(self, parts: Sequence[str]) -> str:
        """Return the parts as one text. Notes below a table belong to its float.

        The first line names the packages that the tables need.
        """
        text = _NOTES_BELOW_TABLE.sub(
            lambda match: f"{match[1].rstrip()}\n\\end{{table}}\n\n", super().join(parts)
        )
        return f"{_LATEX_PREAMBLE}\n{text}"


def _join_latex_fields(fields: Iterable[str]) -> str:
    return f"{' & '.join(fields)} \\\\"


def _is_number_or_missing(text: str) -> bool:
    return text == "–" or bool(_NUMBER_WITH_BOUNDS.fullmatch(text))


def _format_latex_field(text: str) -> str:
    """Return a field of LaTeX. Numbers and their bounds are formatted by siunitx."""
    match = _NUMBER_WITH_BOUNDS.fullmatch(text)
    if match is None:
        return escape_latex(text)
    number, percent, low, _, high, _ = (
        group and group.replace(" ", "") for group in match.groups()
    )
    sign = "\\%" if percent else ""
    bounds = f" (\\numrange{{{low}}}{{{high}}}{sign})" if low else ""
    return f"\\num{{{number}}}{sign}{bounds}"


def escape_latex(text: str) -> str:
    """Return the text with all characters that LaTeX interprets escaped."""
    return "".join(_LATEX.get(char, char) for char in text)


def _escape_markdown(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)


def _escape_block_start(match: re.Match[str]) -> str:
    return f"{match[1]}\\{match[2]}"


FORMATS = {
    "text": Format("simple", str, str, has_lines=True),
    "markdown": Format(
        "github",
        lambda text: f"### {_escape_markdown(text)}\n",
        lambda text: f"\n{_BLOCK_START.sub(_escape_block_start, _escape_markdown(text.strip()))}",
        _escape_markdown,
        column_gap=3,
    ),
    "latex": LatexFormat(
        "latex_booktabs",
        lambda text: f"% {text}",
        lambda text: f"{{\\par\\footnotesize {escape_latex(text)}\\par}}\n",
        names_intervals=True,
    ),
    "html": Format(
        "html",
        lambda text: f"<h3>{markup.escape(text)}</h3>",
        lambda text: f"<p>{markup.escape(text)}</p>",
    ),
}


def render_listing(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    max_width: int | None,
    less_important: Sequence[str] = (),
    min_widths: Mapping[str, int] | None = None,
) -> str:
    """Return a table for a terminal, in lines of `max_width` characters (None: of any length).

    Long texts are wrapped, down to the width of their longest word. Words of the columns
    `min_widths` are broken, down to these widths. If that is not enough, the columns
    `less_important` are left out, the first ones first, and a last line names them.
    """
    columns = {
        name: [make_legible(str(row[number]), _MAX_FIELD_CHARS) for row in rows]
        for number, name in enumerate(headers)
    }
    widths = fitting.wrap_columns(columns, less_important, max_width, min_widths=min_widths or {})
    wrapped = [
        [textwrap.fill(text, width, break_on_hyphens=False) for text in columns[name]]
        for name, width in widths.items()
    ]
    table = tabulate([*zip(*wrapped, strict=True)], list(widths), "simple", disable_numparse=True)
    left_out = ", ".join(name for name in headers if name not in widths)
    if not left_out:
        return table
    note = f"Not shown, because lines are short: {left_out}"
    return f"{table}\n{note if max_width is None else wrap_line(note, max_width)}"


def wrap_line(text: str, max_width: int, indent: str = "    ") -> str:
    """Return a line of a terminal in lines of `max_width` characters, with a hanging indent.

    Words that are longer keep their line.
    """
    return textwrap.fill(
        make_legible(text, _MAX_FIELD_CHARS),
        max_width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def render_facts(facts: Mapping[str, object], key_width: int, max_width: int) -> str:
    """Return a line for each name and value. Values start after `key_width` characters.

    Long values are wrapped. A value with a word that does not fit beside its name is below it.
    """
    lines = []
    for name, value in facts.items():
        text = make_legible(str(value), _MAX_FIELD_CHARS)
        longest_word = max(map(len, text.split()), default=0)
        if key_width + longest_word > max_width:
            lines += [name, wrap_line(f"    {text}", max_width)]
        else:
            lines.append(wrap_line(f"{name:{key_width}}{text}", max_width, " " * key_width))
    return "\n".join(lines)


def wrap_markdown(block: str) -> str:
    """Return a paragraph or a list item of Markdown in lines of at most 100 characters.

    Words that are longer keep their line. Other blocks are returned unchanged: headings, code,
    tables, pictures, and blocks of several lines.
    """
    if "\n" in block or block.startswith(("#", " ", "|", "!")):
        return block
    first, *further_lines = textwrap.wrap(
        block, MARKDOWN_WIDTH - 2, break_long_words=False, break_on_hyphens=False
    ) or [""]
    indent = "  " if block.startswith("- ") else ""
    return "\n".join(
        [
            first,
            *(f"{indent}{_BLOCK_START.sub(_escape_block_start, line)}" for line in further_lines),
        ]
    )


def join_markdown_blocks(blocks: Iterable[str]) -> str:
    """Return the blocks as one text of Markdown, each wrapped by `wrap_markdown`.

    A blank line separates two blocks. This also holds for list items, which may have many lines.
    """
    return "\n\n".join(map(wrap_markdown, blocks))


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
