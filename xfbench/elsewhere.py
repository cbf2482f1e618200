"""Figures that were not measured here: from the literature, or from another tool's file.

What the source does not say is null, and nothing is made up around what it says.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Citation(_Part):
    """The publication or the file a figure comes from, and where in it.

    `where`: table, figure, page or line.
    """

    key: str
    title: str
    where: str


class About(_Part):
    """What a figure is of. Names as in a request, where the source means the same by them.

    `study` is the question that it answers (`xfbench study list`), `machine` in the source's words.
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
    scaling: Literal["strong", "weak"] | None = None
    global_batch_size: int | None = Field(default=None, ge=1)
    batch_size_per_rank: int | None = Field(default=None, ge=1)
    data: str | None = None
    data_format: str | None = None
    medium: str | None = None
    machine: str | None = None


class Figure(_Part):
    """What was printed in the source: a value, or a range from `low` to `high`, or both.

    `relative_to` says what a ratio or a percentage is of. `values` are the single measurements
    behind `value`, in `unit` too, where the source has every one of them.
    """

    quantity: str
    unit: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    relative_to: str | None = None
    values: tuple[float, ...] = ()
    about: About | None = None
