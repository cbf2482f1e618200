"""The tables of a study file, except matrices.

They describe data sets, batch searches, analyses, claims and published figures.
"""

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


def _parse_byte_size(size: Any) -> Any:
    return parse_size(size) if isinstance(size, str) else size


Bytes = Annotated[int, Field(ge=1), BeforeValidator(_parse_byte_size)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PreparedData(_Table):
    """Data sets that a study needs: one for each combination of `of` and `format`.

    - `of`: the images.
    - `format`: the file formats.

    A data set that a matrix names is written to disk if it is missing. In a matrix, "digits-lmdb"
    is the data set in the cache, and "digits-lmdb@memory" is the one in memory. "digits-lmdb@*"
    stands for one data set on each available medium.
    """

    of: tuple[Literal["digits", "photographs"], ...] = ("digits",)
    format: tuple[FormatName, ...] = ("raw",)


class BatchSearch(_Table):
    """A search for the largest batch size that fits in memory.

    1. The search starts with the batch size `from` and doubles it until a launch is out of memory.
    2. Then it bisects between the largest batch that ran and the smallest batch that failed. It
       ends when they differ by at most the fraction `within`.

    The search ends early in any of these cases:

    - The next batch would exceed `most`.
    - A launch took more than `seconds`.
    - Throughput did not rise by the fraction `grows` in the last `flat` doublings. If there is a
      memory limit, peak memory must also be at most a quarter of it.
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

    def is_start_times_power_of_two(self, batch: int) -> bool:
        """Return whether the search reaches this batch by doubling, not by bisection.

        Such a batch is `from` times a power of two.
        """
        factor, remainder = divmod(batch, self.start)
        return remainder == 0 and factor & (factor - 1) == 0

    def describe(self) -> str:
        """Describe the search in words."""
        conditions = [f"until a launch is {self.until}, then bisected to within {self.within:.3g}"]
        conditions += [f"at most {self.most}"] if self.most else []
        conditions += [f"while a launch takes at most {self.seconds:g} s"] if self.seconds else []
        conditions += (
            [f"until {self.flat} doublings in a row do not raise throughput"] if self.flat else []
        )
        return f"from {self.start}, doubled {', '.join(conditions)}"


# Error messages leave out these tags in brackets, which are not part of a setting's path.
Batches = Annotated[
    Annotated[Sequence[Positive], Tag("[list]")] | Annotated[BatchSearch, Tag("[rising]")],
    Discriminator(
        lambda batches: "[rising]" if isinstance(batches, dict | BatchSearch) else "[list]"
    ),
]


class Claim(_Table):
    """A source's claim in words, and the condition under which it holds here.

    - `where`: settings and values that select the figures to check.
    - `best`: the value that must be the best. "cores" stands for the machine's number of cores.
      Only the analysis `best_of` uses `best`.
    - `low`, `high`: the bounds between which the interval of each figure must lie. All other
      analyses use these bounds.
    """

    source: str
    text: str
    where: dict[str, Scalar] = Field(default_factory=dict)
    best: Scalar | None = None
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _require_best_low_or_high(self) -> Claim:
        if self.best is None and self.low is None and self.high is None:
            raise ValueError("a claim needs best, low or high")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds `low` and `high`, with infinity in place of None."""
        low = -math.inf if self.low is None else self.low
        return low, math.inf if self.high is None else self.high


class Analysis(_Table):
    """One analysis of the study's records.

    - `name`: name of the analysis, from `answer.ANALYSES`.
    - `over`: the setting whose values are compared, all else being equal.
    - `of`: the quantity.
    - `against`: the baseline: a value of `over`, "least", "previous" or "best". It may also be a
      table with one of these for each framework.
    - `where`: settings and values that select the cells.
    - `beside`: start of a quantity's name. Published figures of such quantities are drawn next to
      the measured figures.
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
