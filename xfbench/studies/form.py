"""What a study's file says beside its matrices: data to be made, analyses, claims, quotations."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from xfbench.data.manifest import FormatName
from xfbench.elsewhere import Citation, Figure

Scalar = str | int | float
Size = Literal["smoke", "laptop", "paper"]
SIZES: tuple[Size, ...] = ("smoke", "laptop", "paper")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Prepared(_Table):
    """Data sets on disk, of these images in each of these formats, made where they are missing.

    Matrices name one "digits-lmdb", which lies in the cache, "digits-lmdb@memory" in memory, and
    "digits-lmdb@*" on every medium there is.
    """

    of: tuple[Literal["digits", "photographs"], ...] = ("digits",)
    format: tuple[FormatName, ...] = ("raw",)


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
    def _says_something(self) -> Claim:
        if self.best is None and self.low is None and self.high is None:
            raise ValueError("a claim needs best, or low, or high")
        return self


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


class Quoted(_Table):
    """A published figure, with the place where it is printed."""

    citation: Citation
    figure: Figure
