"""What a study's file says beside its matrices: data to be made, analyses, claims, quotations."""

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
    """Data sets on disk, of these images in each of these formats, made where they are missing.

    Matrices name one "digits-lmdb", which lies in the cache, "digits-lmdb@memory" in memory, and
    "digits-lmdb@*" on every medium there is.
    """

    of: tuple[Literal["digits", "photographs"], ...] = ("digits",)
    format: tuple[FormatName, ...] = ("raw",)


class BatchSearch(_Table):
    """Batches that are found out: from one on they double, until a launch is out of memory.

    Then the batch is bisected until what runs and what does not are no more than `within` of it
    apart. It ends sooner where the batch would be over `most`, a launch took more than
    `seconds`, or throughput did not rise by `grows` in `flat` doublings in a row while the peak of
    memory was below a quarter of the limit.
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
            raise ValueError(f"most ({self.most}) is less than from ({self.start})")
        return self

    def is_doubling(self, batch: int) -> bool:
        """Whether it is one of those that double, not one tried between two of them."""
        factor, remainder = divmod(batch, self.start)
        return remainder == 0 and factor & (factor - 1) == 0

    def describe(self) -> str:
        """For a person."""
        conditions = [f"until a launch is {self.until}, to within {self.within:.3g} of it"]
        conditions += [f"at most {self.most}"] if self.most else []
        conditions += (
            [f"while a launch takes no more than {self.seconds:g} s"] if self.seconds else []
        )
        conditions += [f"while {self.flat} doublings gain anything"] if self.flat else []
        return f"{self.start} and on, doubled {', '.join(conditions)}"


# Tags in brackets are no part of a setting's place in a file, where a slip is told.
Batches = Annotated[
    Annotated[Sequence[Positive], Tag("[list]")] | Annotated[BatchSearch, Tag("[rising]")],
    Discriminator(
        lambda batches: "[rising]" if isinstance(batches, dict | BatchSearch) else "[list]"
    ),
]


class Claim(_Table):
    """What a source found, in words, and what would have to be so here.

    `where` chooses the figures it is about. Of `best_of`, `best` is the value that would have to
    be best ("cores": as many as the machine's cores); of others each figure's interval would
    have to lie between `low` and `high`.
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
            raise ValueError("a claim needs best, or low, or high")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """`low` and `high`; infinite where there is none."""
        low = -math.inf if self.low is None else self.low
        return low, math.inf if self.high is None else self.high


class Analysis(_Table):
    """One of `analyses.py` by its name, what it is of, and what its figures are compared with.

    `over` is the setting whose values are held against one another, all else being equal;
    `of` the quantity; `against` the value that others are relative to, "least", "previous" or
    "best", or one for each framework; `where` says which cells are looked at. Published figures
    whose quantity begins as `beside` says are drawn beside those measured.
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
    """A published figure, with the place where it is printed."""

    citation: Citation
    figure: Figure
