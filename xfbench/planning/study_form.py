"""The tables of a study file, except matrices.

They describe data sets, batch searches, analyses, claims and published figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from xfbench.base.quantities import parse_share, parse_size
from xfbench.datasets.manifest import FormatName
from xfbench.model import settings
from xfbench.model.external_record import Citation, Figure

Scalar = str | int | float
Size = Literal["smoke", "laptop", "paper"]
SIZES: tuple[Size, ...] = ("smoke", "laptop", "paper")
Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


def _parse_byte_size(size: Any) -> Any:
    return parse_size(size) if isinstance(size, str) else size


def _parse_share(share: Any) -> Any:
    return parse_share(share) if isinstance(share, str) else share


def as_list(setting: Any) -> Any:
    """Return a list with the setting if it is a single value, else the setting."""
    return [setting] if isinstance(setting, str | int | float) else setting


Positives = Annotated[Sequence[Positive], BeforeValidator(as_list)]
Bytes = Annotated[int, Field(ge=1), BeforeValidator(_parse_byte_size)]
TargetLoss = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_parse_share)]


def _to_cell_field(setting_name: str) -> str:
    """Return the field of cells that stores the setting; other names stay."""
    setting = settings.BY_NAME.get(setting_name)
    return setting.cell_field if setting else setting_name


def _to_stored_values(values: dict[str, Scalar]) -> dict[str, Scalar]:
    return {
        _to_cell_field(name): settings.BY_NAME[name].to_stored(value)
        if name in settings.BY_NAME
        else value
        for name, value in values.items()
    }


# Settings may be named as in a matrix, or as in records.
SettingName = Annotated[str, AfterValidator(_to_cell_field)]
ValueBySetting = Annotated[dict[str, Scalar], AfterValidator(_to_stored_values)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PreparedData(_Table):
    """Data sets that xfbench writes for a study: one for each combination of `of` and `format`.

    - `of`: the images.
    - `format`: the file formats.

    xfbench writes only data sets that a matrix names and that do not exist yet. A matrix names a
    data set in one of these ways:

    - "digits-lmdb": the digits as LMDB, in xfbench's cache folder.
    - "digits-lmdb@memory": the same data set on the medium "memory", which is /dev/shm.
    - "digits-lmdb@*": one copy of the data set on each medium.

    `--medium` adds further media.
    """

    of: tuple[Literal["digits", "photographs"], ...] = ("digits",)
    format: tuple[FormatName, ...] = ("raw",)


class BatchSearch(_Table):
    """A search for the largest batch size that fits in memory.

    1. The search starts with the batch size `from` and doubles it until a launch is out of memory.
    2. Then the search bisects between the largest batch that ran and the smallest batch that was
       out of memory. The search ends when these two differ by at most the fraction `within`.

    The search ends without bisection in any of these cases:

    - The next doubling would exceed `most` images.
    - The launch with the largest batch took more than `seconds`.
    - Throughput stopped growing: the last `flat` doublings raised it by at most the fraction
      `grows`. This case is ignored while the peak memory is above a quarter of the memory limit.
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
    Annotated[Positives, Tag("[list]")] | Annotated[BatchSearch, Tag("[rising]")],
    Discriminator(
        lambda batches: "[rising]" if isinstance(batches, dict | BatchSearch) else "[list]"
    ),
]


class Claim(_Table):
    """A claim of a source in words, and the result that the claim predicts.

    - `finding`: the published sentence that the claim is about, word for word; "": none.
    - `where`: settings and values that select the measured figures to check.
    - `best`: the predicted best value of the analysis's setting `over`. "cores" stands for the
      machine's number of cores. Only claims of the analysis `best_of` have `best`.
    - `low`, `high`: bounds between which the interval of each figure should lie; None: no bound.
      Claims of all other analyses have at least one bound.
    - `against`: a part of the name of the machine that is the baseline of the figures, whichever
      the analysis has; "": the baseline of the analysis. Only analyses over machines have it.
    """

    source: str
    text: str
    finding: str = ""
    where: ValueBySetting = Field(default_factory=dict)
    best: Scalar | None = None
    low: float | None = None
    high: float | None = None
    against: str = ""

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


class UnjudgedFinding(_Table):
    """A published sentence, or a part of it, that no claim judges.

    - `finding`: the sentence, word for word.
    - `reason`: why it cannot be told whether the sentence holds, without a final full stop.
    """

    finding: str
    reason: str


class Analysis(_Table):
    """One analysis of the study's records.

    - `name`: name of the analysis: a key of `answer.ANALYSES`.
    - `over`: name of the setting whose values are compared.
    - `of`: name of the measured quantity.
    - `epochs`: the number of epochs of the quantity `time_to_solution`.
    - `against`: the value of `over` that is the baseline. A table gives a baseline for each
      framework. Of a machine, a part of the name is enough. Three words stand for values: "least"
      for the smallest value, "previous" for the next smaller value, and "best" for the value with
      the best result.
    - `target`: the test loss until which the analysis `learning_speedup` compares times of
      training. A table gives one for each workload. Default: the workload's own
      (`Workload.target_loss`).
    - `epoch_images`: number of images in an epoch of synthetic input, for bytes of an epoch. None:
      as many as in the data set that the network was published with.
    - `where`: settings and values that select the cells.
    - `beside`: published figures whose quantity starts with this text are drawn with the measured
      figures; "": no published figures are drawn.
    """

    name: str
    title: str = ""
    over: SettingName = ""
    of: str = "images_per_second"
    epochs: Positive = 1
    against: Scalar | dict[str, Scalar] = "least"
    epoch_images: Positive | None = None
    target: TargetLoss | dict[str, TargetLoss] | None = None
    where: ValueBySetting = Field(default_factory=dict)
    plot: Literal["bars", "lines", "none"] = "bars"
    beside: str = ""
    claim: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _check_epoch_images(self) -> Analysis:
        is_per_epoch = self.name == "links" or self.of == "exchanged_gigabytes"
        if self.epoch_images and not is_per_epoch:
            raise ValueError('epoch_images needs name = "links" or of = "exchanged_gigabytes"')
        return self


class QuotedFigure(_Table):
    """A published figure and its citation."""

    citation: Citation
    figure: Figure
