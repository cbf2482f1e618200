"""The tables of a study's file other than matrices: data sets, analyses, claims, quotations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from xfbench.datasets.manifest import FormatName
from xfbench.model.external_record import Citation, Figure
from xfbench.model.strategy import parse_size

Scalar = str | int | float
Size = Literal["smoke", "laptop", "paper"]
SIZES: tuple[Size, ...] = ("smoke", "laptop", "paper")
Positive = Annotated[int, Field(ge=1)]


def _parse_size(size: Any) -> Any:
    return parse_size(size) if isinstance(size, str) else size


Bytes = Annotated[int, Field(ge=1), BeforeValidator(_parse_size)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PreparedData(_Table):
    """Data sets of the images `of` in each `format`, written to disk if missing.

    In a matrix, "digits-lmdb" is the data set in the cache, and "digits-lmdb@memory" is the one in
    memory. "digits-lmdb@*" stands for one data set on each available medium.
    """

    of: tuple[Literal["digits", "photographs"], ...] = ("digits",)
    format: tuple[FormatName, ...] = ("raw",)


class BatchSearch(_Table):
    """A search for the largest batch: it doubles from `from` until a launch is out of memory.

    Then it bisects between the largest batch that ran and the smallest that failed, until they
    differ by at most the fraction `within`. The search ends early in any of these cases:

    - The next batch would exceed `most`.
    - A launch took more than `seconds`.
    - Throughput did not rise by the fraction `grows` in the last `flat` doublings, and peak memory
      is at most a quarter of the memory limit (if there is a limit).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    start: int = Field(alias="from", ge=1)
    until: Literal["out of memory"]
    within: float = Field(default=1 / 16, gt=0, lt=1)
    most: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0)
    flat: int | None = Field(default=None, ge=1)
    grows: float = Field(default=0.02, gt=0)

    @model_validator(mode="after")
    def _check_order(self) -> BatchSearch:
        if self.most is not None and self.most < self.start:
            raise ValueError(f"most ({self.most}) must not be less than from ({self.start})")
        return self

    def is_doubling(self, batch: int) -> bool:
        """Return whether the batch is `from` times a power of two, and so not from bisection."""
        factor, remainder = divmod(batch, self.start)
        return remainder == 0 and factor & (factor - 1) == 0

    def describe(self) -> str:
        """Return the search in words."""
        conditions = [f"until a launch is {self.until}, then bisected to within {self.within:.3g}"]
        conditions += [f"at most {self.most}"] if self.most else []
        conditions += [f"while a launch takes at most {self.seconds:g} s"] if self.seconds else []
        conditions += [f"while {self.flat} doublings raise throughput"] if self.flat else []
        return f"from {self.start}, doubled {', '.join(conditions)}"


# Error locations leave out tags in brackets: they are not part of a setting's path in the file.
Batches = Annotated[
    Annotated[Sequence[Positive], Tag("[list]")] | Annotated[BatchSearch, Tag("[rising]")],
    Discriminator(
        lambda batches: "[rising]" if isinstance(batches, dict | BatchSearch) else "[list]"
    ),
]


class Claim(_Table):
    """A source's claim in words, and what must be true here for it to hold.

    `where` selects the figures. For `best_of`, `best` must be the best value ("cores" stands for
    the machine's number of cores). For other analyses, the interval of each figure must lie
    between `low` and `high`.
    """

    source: str
    text: str
    where: dict[str, Scalar] = Field(default_factory=dict)
    best: Scalar | None = None
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _check_expectation(self) -> Claim:
        if self.best is None and self.low is None and self.high is None:
            raise ValueError("a claim needs best, low or high")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds `low` and `high`. A bound that is not given is infinite."""
        low = -math.inf if self.low is None else self.low
        return low, math.inf if self.high is None else self.high


class Analysis(_Table):
    """An analysis of `answer.ANALYSES` by name, its quantity, and its baseline.

    - `over`: the setting whose values are compared, all else being equal.
    - `of`: the quantity.
    - `against`: the baseline: a value of `over`, "least", "previous" or "best". It may also be a
      table with one of these for each framework.
    - `where`: selects cells.
    - `beside`: published figures whose quantity starts with it are drawn next to measured figures.
    """

    name: str
    title: str = ""
    over: str = ""
    of: str = "images_per_second"
    against: Scalar | dict[str, Scalar] = "least"
    where: dict[str, Scalar] = Field(default_factory=dict)
    plot: Literal["bars", "lines", "none"] = "bars"
    beside: str = ""
    claim: tuple[Claim, ...] = ()


class QuotedFigure(_Table):
    """A published figure and its citation."""

    citation: Citation
    figure: Figure
