"""Figures and lists as words, the same in sentences, tables and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.analysis.statistics import Interval
from xfbench.layout import tables


def number(value: float, unit: str) -> str:
    """A figure in its unit, without it: shares as percentages."""
    if unit == "%":
        return f"{value:.1%}"
    if unit == "times":
        return f"{value:.3g}"
    if unit == "images":  # a batch is a whole number, and every digit of it counts
        return tables.format_number(value, len(f"{value:.0f}"))
    return tables.format_number(value, 3) if value > 0 else f"{value:.3g}"


def ends(interval: Interval, unit: str) -> str:
    """The interval alone."""
    if interval.low is None or interval.high is None:
        return "–"
    return f"{number(interval.low, unit)} – {number(interval.high, unit)}"


def figure(interval: Interval, unit: str) -> str:
    """A figure with its interval, if it has one, and its unit."""
    shown = number(interval.value, unit)
    if interval.low is not None and interval.high is not None:
        shown += f" ({ends(interval, unit)})"
    return shown if unit == "%" else f"{shown} {unit}"


def plural(count: int, what: str) -> str:
    """So many of them."""
    ending = "es" if what.endswith("ch") else "s"
    return f"{count} {what}{'' if count == 1 else ending}"


def joined(words: Sequence[str]) -> str:
    """A, B and C."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
