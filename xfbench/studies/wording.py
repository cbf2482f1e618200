"""Formatting of numbers and lists for sentences, tables and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.rendering import tables
from xfbench.statistics import Interval


def format_number_without_unit(value: float, unit: str) -> str:
    """Return the number as text without its unit.

    The unit decides how many digits are written. If `unit` is "%", `value` is a fraction, and the
    text is a percentage with the sign "%".
    """
    if unit == "%":
        return f"{value:.1%}"
    if unit == "times":
        return f"{value:.3g}" if value < 1000 else tables.format_number(value, 3)
    if unit == "images":  # a batch is a whole number; all its digits are significant
        return tables.format_number(value, len(f"{value:.0f}"))
    return tables.format_number(value, 3) if value > 0 else f"{value:.3g}"


def format_bounds_without_unit(interval: Interval, unit: str) -> str:
    """Return the interval's bounds as "low – high", or "–" if a bound is missing.

    If the bounds are only the range of the launches, return "range low – high".
    """
    if interval.low is None or interval.high is None:
        return "–"
    low, high = (format_number_without_unit(end, unit) for end in (interval.low, interval.high))
    return f"{'range ' if interval.confidence is None else ''}{low} – {high}"


def format_value_with_bounds(interval: Interval, unit: str) -> str:
    """Return the interval's value and unit as text, with the bounds if the interval has bounds."""
    text = format_number_without_unit(interval.value, unit)
    if interval.low is not None and interval.high is not None:
        text += f" ({format_bounds_without_unit(interval, unit)})"
    return text if unit == "%" else f"{text} {unit}"


def join_words(words: Sequence[str]) -> str:
    """Join the words as in "A, B and C"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def format_ends(examples: Sequence[tuple[float, str]]) -> str:
    """Return the texts of the smallest and the largest value, for the end of a sentence.

    As in "A in the lowest of 5 cases. In the highest, it is B". With one or two values, return all
    their texts.
    """
    texts = [text for _, text in sorted(examples)]
    if len(texts) <= 2:
        return " and ".join(texts)
    return f"{texts[0]} in the lowest of {len(texts)} cases. In the highest, it is {texts[-1]}"
