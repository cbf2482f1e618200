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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tabulate import tabulate

from xfbench.base.errors import UsageError
from xfbench.base.terminal_text import add_style, make_encodable, make_legible
from xfbench.rendering import fitting
from xfbench.statistics import Interval

if TYPE_CHECKING:  # this takes long to import, and most tables do not need it
    from xfbench.analysis.prediction import Figure

MARKDOWN_WIDTH = 100  # of a line
LATEX_WIDTH = 345  # points: \textwidth of \documentclass{article}
_MAX_FIELD_CHARS = 1000  # longer fields are cut
_MAX_CAPTION_CHARS = 2000
_MAX_LABEL_CHARS = 120
_MARKDOWN_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|#~!&@]|://|www\.")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
_ENTITIES |= {"://": "&#58;//", "www.": "www&#46;"}  # prevents links
# The start of a list item, heading, quotation or underline of a heading.
_BLOCK_START = re.compile(r"^(\d*)([-+#>=]|(?<=\d)[.)](?=\s|$))")
_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "\\": "$\\backslash$"}
_LATEX |= {"^": "\\^{}", "~": "\\~{}"}
_LATEX |= {"[": "{[}", "]": "{]}", "*": "{*}"}  # after a line break, they would be its options
# Widths of characters that are not as wide as most, in points.
_LATEX_POINTS = {
    **dict.fromkeys("ijl.,:;[]'", 3.1),
    **dict.fromkeys("frst()- ", 4.0),
    **dict.fromkeys("0123456789aceo/–", 5.0),
    **dict.fromkeys("mw%+=<>", 8.4),
    **dict.fromkeys("MW", 10.3),
}
_NUMBER = r"([0-9]{1,3}(?: [0-9]{3})*(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)(%?)"
_NUMBER_WITH_BOUNDS = re.compile(rf"{_NUMBER}(?: \({_NUMBER}–{_NUMBER}\))?")
_NO_LABEL = re.compile(r"[^a-z0-9]+")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/+-]*")
_LABEL_LINE = re.compile(r"^\\label\{(.*)\}$", re.MULTILINE)
_NOTES_BELOW_TABLE = re.compile(r"\\end\{table\}\n((?:\{\\par[^\n]*\n+)+)")
# The start of a formula. In some languages, spreadsheets end a field at a semicolon.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@])")


@dataclass(frozen=True)
class Format:
    """The layout of a table, its heading and its notes.

    - `style`: the name of a table style of tabulate.
    - `heading`: function that returns the heading in this format, escaped.
    - `note`: function that returns a note in this format, escaped.
    - `escape`: function that escapes a field, if tabulate does not. tabulate escapes fields for
      LaTeX and HTML.
    - `column_gap`: number of characters that a column of a line needs beside its texts.
    - `has_lines`: whether the text is for a terminal, which shows lines and colours.
    - `stands_alone`: whether the table is read without xfbench's pages, so that its caption and
      notes say what it shows. Such a table has no line that leads to a command.
    - `measure`, `header_padding`: how wide texts are (see `fitting.fit_columns`).
    """

    style: str
    heading: Callable[[str], str]
    note: Callable[[str], str]
    escape: Callable[[str], str] = str
    column_gap: int = 2
    has_lines: bool = False
    stands_alone: bool = False
    measure: Callable[[str], float] = len
    header_padding: int = fitting.HEADER_PADDING

    def render_table(
        self,
        headers: Sequence[str],
        lines: Sequence[Sequence[str]],
        title: str = "",
        caption: str = "",
        max_width: float | None = None,
        label: str = "",
    ) -> str:
        """Return the table with these headers and lines of fields, escaped for this format.

        `title` names the table, `caption` describes it (default: the title) and references use
        `label`, if tables of this format have captions. Caption and label have the syntax of the
        format.

        `max_width`: only tables in LaTeX use it. They wrap long texts to be at most so wide.
        """
        rows = [[self.escape_field(field) for field in line] for line in lines]
        names = [self.escape_field(name) for name in headers]
        if self.has_lines:
            rows = [[*map(_add_field_style, names, row)] for row in rows]
            names = [add_style(name, "bold") for name in names]
        return tabulate(rows, names, self.style, disable_numparse=True)

    def render_tables_that_fit(
        self,
        headers: Sequence[str],
        lines: Sequence[Sequence[str]],
        max_width: int | None,
        key_count: int,
        title: str,
        caption: str = "",
        label: str = "",
    ) -> Iterator[str]:
        """Yield one table for each group of columns that fits, with a blank line between them.

        - `max_width`: maximum length of a line in characters; None: one table has all columns.
        - `key_count`: number of first columns that each table repeats.
        - `title`, `caption`, `label`: see `render_table`. Tables after the first have their number
          in them.
        """
        columns = [
            [self.escape_field(text) for text in column]
            for column in zip(headers, *lines, strict=True)
        ]
        groups = fitting.split_columns(
            columns, max_width, self.column_gap, key_count, self.measure, self.header_padding
        )
        for number, group in enumerate(groups):
            if number:
                yield ""
            part = f", part {number + 1}" if number else ""
            yield self.render_table(
                [headers[n] for n in group],
                [[line[n] for n in group] for line in lines],
                f"{title}{part}",
                f"{caption.removesuffix('.')}{part}." if caption and number else caption,
                label=f"{label}-part-{number + 1}" if label and number else label,
            )

    def render_heading(self, text: str, max_width: int | None = None) -> str:
        """Return `text` as the heading of a table."""
        return self.heading(self._make_legible_and_wrap(text, max_width))

    def render_note(self, text: str, max_width: int | None = None) -> str:
        """Return `text` as a note below a table."""
        return self.note(self._make_legible_and_wrap(text, max_width))

    def render_warning(self, text: str, max_width: int | None = None) -> str:
        """Return `text` as a note that a terminal shows in yellow."""
        if self.has_lines:
            return add_style(self._make_legible_and_wrap(text, max_width), "yellow")
        return self.render_note(text, max_width)

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
        legible = make_legible(text, _MAX_FIELD_CHARS)
        return self.escape(make_encodable(legible) if self.has_lines else legible)


def _add_field_style(header: str, text: str) -> str:
    """Return a field of a table for a terminal: verdicts and failures have a colour."""
    if header == "status" and text != "ok":
        return add_style(text, "red")
    if header == "A is" and text in ("faster", "slower"):
        return add_style(text, "green" if text == "faster" else "red")
    return text


_LATEX_PREAMBLE = "% In the preamble: \\usepackage{booktabs,siunitx} \\sisetup{range-phrase=--}"


class LatexFormat(Format):
    """Tables of the packages booktabs and siunitx, with caption and label."""

    def render_table(
        self,
        headers: Sequence[str],
        lines: Sequence[Sequence[str]],
        title: str = "",
        caption: str = "",
        max_width: float | None = None,
        label: str = "",
    ) -> str:
        """Return the table with these headers and lines of fields, its caption and its label.

        Columns of numbers are right-aligned. If the table is wider than `max_width` points, its
        widest texts are wrapped.
        """
        columns = [
            [make_legible(field, _MAX_FIELD_CHARS) for field in column]
            for column in zip(*lines, strict=True)
        ]
        is_number = [all(map(_is_number_or_missing, column)) for column in columns]
        alignments = ["r" if each else "l" for each in is_number]
        if max_width is not None:
            texts = [[head, *column] for head, column in zip(headers, columns, strict=True)]
            for n, width in self._wrap_widths(texts, is_number, max_width).items():
                alignments[n] = f"p{{{width:.0f}pt}}"
        alignment = "".join(alignments)
        name = make_legible(title, _MAX_FIELD_CHARS)
        captioned = [f"\\caption{{{caption or escape_latex(name)}}}"]
        captioned += [f"\\label{{{label}}}"] if label else []
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

    def _wrap_widths(
        self, columns: Sequence[Sequence[str]], is_number: Sequence[bool], max_width: float
    ) -> dict[int, float]:
        """Return the widths in points of the columns of text that must be wrapped, by number.

        The widest column becomes narrower until the table fits, or each has the width of a word.
        """
        widths = [max(map(self.measure, column)) for column in columns]
        least = [
            width
            if is_fixed
            else max(self.measure(word) for text in column for word in text.split() or [""])
            for width, is_fixed, column in zip(widths, is_number, columns, strict=True)
        ]
        narrow = [*widths]
        while sum(narrow) + self.column_gap * len(narrow) > max_width:
            candidates = [n for n, width in enumerate(narrow) if width > least[n]]
            if not candidates:
                break
            widest = max(candidates, key=narrow.__getitem__)
            narrow[widest] = max(least[widest], narrow[widest] - 1)
        return {n: width for n, width in enumerate(narrow) if width < widths[n]}

    def join(self, parts: Sequence[str]) -> str:
        """Return the parts as one text. Notes below a table belong to its float.

        The first line names the packages that the tables need. Equal labels are numbered.
        """
        text = _NOTES_BELOW_TABLE.sub(
            lambda match: f"{match[1].rstrip()}\n\\end{{table}}\n\n", super().join(parts)
        )
        uses: Counter[str] = Counter()

        def number(match: re.Match[str]) -> str:
            uses[match[1]] += 1
            suffix = f"-{uses[match[1]]}" if uses[match[1]] > 1 else ""
            return f"\\label{{{match[1]}{suffix}}}"

        return f"{_LATEX_PREAMBLE}\n{_LABEL_LINE.sub(number, text)}"


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


def make_latex_caption(text: str) -> str:
    """Return sentences as a caption in LaTeX, escaped."""
    return escape_latex(make_legible(text, _MAX_CAPTION_CHARS))


def make_latex_label(kind: str, text: str) -> str:
    """Return a label such as "tab:xfbench-lenet-cpu". `kind` is "tab" or "fig"."""
    name = _NO_LABEL.sub("-", text.lower())[:_MAX_LABEL_CHARS].strip("-")
    return f"{kind}:xfbench-{name}"


def check_latex_label(label: str) -> None:
    """Raise UsageError if LaTeX would interpret a character of the user's label."""
    if not _LABEL.fullmatch(label):
        raise UsageError(
            f"--label {label!r}: use letters, digits and the characters : . _ / + -, and begin "
            "with a letter or digit, such as tab:lenet"
        )


def _measure_latex(text: str) -> float:
    """Return at least the width of the text in points, in LaTeX's usual font at 10 points."""
    return sum(_LATEX_POINTS.get(char, 7.8 if char.isupper() else 5.6) for char in text)


def escape_latex(text: str) -> str:
    """Return the text with all characters that LaTeX interprets escaped."""
    return "".join(_LATEX.get(char, char) for char in text)


def _escape_markdown(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)


def _escape_block_start(match: re.Match[str]) -> str:
    return f"{match[1]}\\{match[2]}"


FORMATS = {
    "text": Format(
        "simple", partial(add_style, style="bold"), partial(add_style, style="dim"), has_lines=True
    ),
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
        column_gap=12,  # points: two times \tabcolsep
        stands_alone=True,
        measure=_measure_latex,
        header_padding=0,
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
        name: [make_encodable(make_legible(str(row[number]), _MAX_FIELD_CHARS)) for row in rows]
        for number, name in enumerate(headers)
    }
    widths = fitting.wrap_columns(columns, less_important, max_width, min_widths=min_widths or {})
    wrapped = [
        [textwrap.fill(text, width, break_on_hyphens=False) for text in columns[name]]
        for name, width in widths.items()
    ]
    fields = (
        ["\n".join(_add_field_style(name, line) for line in text.splitlines()) for text in texts]
        for name, texts in zip(widths, wrapped, strict=True)
    )
    headers = [add_style(name, "bold") for name in widths]
    table = tabulate([*zip(*fields, strict=True)], headers, "simple", disable_numparse=True)
    left_out = ", ".join(name for name in columns if name not in widths)
    if not left_out:
        return table
    note = f"Not shown, because lines are short: {left_out}"
    note = note if max_width is None else wrap_line(note, max_width)
    return f"{table}\n{add_style(note, 'dim')}"


def wrap_line(text: str, max_width: int, indent: str = "    ") -> str:
    """Return a line of a terminal in lines of `max_width` characters, with a hanging indent.

    Words that are longer keep their line.
    """
    return textwrap.fill(
        make_encodable(make_legible(text, _MAX_FIELD_CHARS)),
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


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown with padded columns. The character "|" is escaped."""
    lines = [
        [make_legible(field, _MAX_FIELD_CHARS).replace("|", "\\|") for field in line]
        for line in (headers, *rows)
    ]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded_lines = [
        [field.ljust(width) for field, width in zip(line, widths, strict=True)] for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded_lines)


def fits_markdown(table: str) -> bool:
    """Return whether no line of the table is longer than `MARKDOWN_WIDTH`."""
    return max(map(len, table.splitlines())) <= MARKDOWN_WIDTH


def join_markdown_blocks(blocks: Iterable[str]) -> str:
    """Return the blocks as one text of Markdown, each wrapped by `wrap_markdown`.

    A blank line separates two blocks. This also holds for list items ("- …"), which may have many
    lines.
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
    return _FORMULA.sub(r"\1'", text)


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
