"""Formats of tables as text: how one is laid out, what keeps its texts from doing anything, digits.

What a record says is anybody's: in no format may it be more than text to look at. Which rows
and columns a table has is `tables.py`'s business.
"""

from __future__ import annotations

import csv
import html as markup
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from xfbench.analysis.prediction import Figure
from xfbench.analysis.statistics import Interval
from xfbench.base.terminal_text import make_legible

_LONGEST = 1000  # characters of a field
_MARKS = re.compile(r"[\\`*_{}\[\]<>|#~!&@]|://|www\.")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
_ENTITIES |= {"://": "&#58;//", "www.": "www&#46;"}  # else they become links
_LISTED = re.compile(r"^(\d*)([-+.)])")  # what would begin a list
_LATEX = {one: f"\\{one}" for one in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "\\": "$\\backslash$"}
_LATEX |= {"^": "\\^{}", "~": "\\~{}"}
_STARTS = ("=", "+", "-", "@")


@dataclass(frozen=True)
class Format:
    """How a table is laid out, and what stands above and below it.

    `style` is tabulate's, which escapes fields for LaTeX and HTML itself; in the others
    `escaped` does. `heading` and `note` make lines of their own of a text, and escape it.
    """

    style: str
    heading: Callable[[str], str]
    note: Callable[[str], str]
    escaped: Callable[[str], str] = str

    def table(self, headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
        """The table of texts as they are."""
        shown = [[self._fit(field) for field in line] for line in lines]
        names = [self._fit(name) for name in headers]
        return tabulate(shown, names, self.style, disable_numparse=True)

    def above(self, text: str) -> str:
        """The heading of a table."""
        return self.heading(make_legible(text, _LONGEST))

    def below(self, text: str) -> str:
        """What is said under a table."""
        return self.note(make_legible(text, _LONGEST))

    def _fit(self, text: str) -> str:
        return self.escaped(make_legible(text, _LONGEST))


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(one, one) for one in text)


def _in_markdown(text: str) -> str:
    return _MARKS.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), text)


def _as_text(found: re.Match[str]) -> str:
    return f"{found[1]}\\{found[2]}"


FORMATS = {
    "text": Format("simple", str, str),
    "markdown": Format(
        "github",
        lambda text: f"### {_in_markdown(text)}\n",
        lambda text: f"\n{_LISTED.sub(_as_text, _in_markdown(text.strip()))}",
        _in_markdown,
    ),
    "latex": Format(
        "latex_booktabs",
        lambda text: f"% {text}",
        lambda text: f"\\par {_in_latex(text)}\n",
    ),
    "html": Format(
        "html",
        lambda text: f"<h3>{markup.escape(text)}</h3>",
        lambda text: f"<p>{markup.escape(text)}</p>",
    ),
}


def disarmed(value: object) -> object:
    """As a CSV's field: a text that neither a spreadsheet nor a terminal would run."""
    if not isinstance(value, str):
        return value
    text = make_legible(value, len(value))
    return f"'{text}" if text.lstrip().startswith(_STARTS) else text


def as_csv(lines: Sequence[Mapping[str, object]]) -> str:
    """Lines with names for columns, numbers in full; nothing in it runs in a spreadsheet."""
    out = io.StringIO()
    if lines:
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        for line in lines:
            writer.writerow({name: disarmed(value) for name, value in line.items()})
    return out.getvalue()


def speed(interval: Interval | Figure | None) -> str:
    """A throughput with the digits its interval supports, or both ends where it is wide."""
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None:
        return grouped(interval.value, 3)
    half = (interval.high - interval.low) / 2
    if half > interval.value / 4:
        ends = f"{grouped(interval.low, 2)}–{grouped(interval.high, 2)}"
        return f"{grouped(interval.value, 2)} ({ends})"
    if half <= 1e-6 * interval.value:  # no more than rounding of equal launches
        return grouped(interval.value, 6)
    place = 1 - math.floor(math.log10(half))  # two significant digits of the half-width
    return f"{_placed(interval.value, place)} ± {_placed(half, place)}"


def grouped(value: float, digits: int) -> str:
    """A positive number with so many significant digits, thousands set apart."""
    return _placed(value, digits - 1 - math.floor(math.log10(value)))


def _placed(value: float, place: int) -> str:
    return f"{round(value, place):,.{max(place, 0)}f}".replace(",", " ")
