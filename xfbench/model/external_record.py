"""Figures that xfbench did not measure: from the literature, or from another tool's file.

Each field repeats what the source states. If the source does not state it, the field is null.
"""

from __future__ import annotations

from pydantic import Field

from xfbench.model.request import Scaling
from xfbench.model.sealed import DocumentPart


class Citation(DocumentPart):
    """The publication or the file that a figure comes from.

    `where` is the place in the source: table, figure, page or line.
    """

    key: str
    title: str
    where: str


class About(DocumentPart):
    """What a figure describes.

    The fields use xfbench's names, such as "torch", where the source means the same thing.

    `study` is the study whose question the figure answers (`xfbench study list`).
    `machine` describes the machine in the words of the source.
    """

    study: str | None = None
    workload: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    kernel: str | None = None
    device: str | None = None
    precision: str | None = None
    threads: int | None = Field(default=None, ge=1)
    ranks: int | None = Field(default=None, ge=1)
    nodes: int | None = Field(default=None, ge=1)
    strategy: str | None = None
    scaling: Scaling | None = None
    global_batch_size: int | None = Field(default=None, ge=1)
    batch_size_per_rank: int | None = Field(default=None, ge=1)
    batch_size_per_node: int | None = Field(default=None, ge=1)
    data: str | None = None
    data_format: str | None = None
    medium: str | None = None
    machine: str | None = None


class Figure(DocumentPart):
    """A figure as its source states it: a value, a range, or both.

    `low` is the lower end of the range.
    `high` is the upper end of the range.
    `relative_to` is what a ratio or a percentage refers to.
    `values` has the single measurements that the value summarizes, in the same unit, if the source
    states all of them.
    """

    quantity: str
    unit: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    relative_to: str | None = None
    values: tuple[float, ...] = ()
    about: About | None = None


def figure_error(figure: Figure) -> str | None:
    """Return why a figure is impossible, in one line; None if it is possible."""
    value, low, high = figure.value, figure.low, figure.high
    if value is None and low is None and high is None:
        return "the figure has neither a value nor a range"
    if low is not None and high is not None and low > high:
        return f"the figure's range goes from {low:g} down to {high:g}"
    numbers = [number for number in (value, low, high, *figure.values) if number is not None]
    if figure.unit == "s" and min(numbers) < 0:
        return f"the figure is a time of {min(numbers):g} s"
    if value is not None and not _is_between_low_and_high(value, figure):
        return f"the figure's value, {value:g}, is outside its range"
    if any(not _is_between_low_and_high(number, figure) for number in figure.values):
        return "some of the figure's values are outside its range"
    return None


def _is_between_low_and_high(value: float, figure: Figure) -> bool:
    low, high = figure.low, figure.high
    return (low is None or low <= value) and (high is None or value <= high)
