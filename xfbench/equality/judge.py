"""Compares what a framework gave with what the oracle expects: tolerances, and what is outside.

A tolerance is what rounding does to that very number, times SAFETY, the one factor for all
frameworks, layers and precisions. Nothing is judged by taste or loosened for anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xfbench.equality.cases import Case
from xfbench.equality.oracle import Expected
from xfbench.model.certificate import SAFETY

# Rounding of the result itself, in units of float32: draws may by chance hit the truth.
_RESULT_ULPS = 32.0
_EPSILON_FLOAT32, _EPSILON_FLOAT64 = 2.0**-23, 2.0**-52
# Layers that are there so that others can be seen: whether they move far enough is no matter.
_ADDED_LAYERS = ("probe/", "stem")
_FLOAT64_TOLERANCE = (
    1e-8  # relative, in float64: far above its rounding, far below any other network
)
# Caffe takes a probability below the smallest normal float32 for that one, so that a loss per
# image is at most 87.3; larger ones are compared through the scores alone.
CAFFE_LARGEST_LOSS = 87.3


@dataclass(frozen=True)
class Deviation:
    """One quantity of one case: its distance from the truth and what is allowed, absolute norms."""

    case: Case
    precision: str
    quantity: str
    error: float
    allowed: float
    size: float

    @property
    def is_within_tolerance(self) -> bool:
        return self.error <= self.allowed  # false for NaN

    @property
    def excess(self) -> float:
        """How many times what is allowed; infinite for what is missing or not finite.

        Of what has to be 0, and is, nothing.
        """
        if self.error == 0.0:
            return 0.0
        excess = self.error / self.allowed if self.allowed else float("inf")
        return float(excess) if np.isfinite(excess) else float("inf")

    @property
    def relative_error(self) -> float:
        """Relative to the truth's norm; absolute where that is nothing but rounding."""
        return self.error / self.size if self.size > self.allowed else self.error

    @property
    def tolerance(self) -> float:
        """What is allowed, in the terms of `relative_error`."""
        return self.allowed / self.size if self.size > self.allowed else self.allowed

    @property
    def kind(self) -> str:
        """gradient, output, step, losses, test_loss or test_scores."""
        kind = self.quantity.partition("/")[0].rstrip("0123456789")
        return kind.removeprefix("trained_")

    @property
    def name(self) -> str:
        """The parameter or layer it is of; empty for losses."""
        return self.quantity.partition("/")[2]

    @property
    def layer(self) -> str:
        """The layer it belongs to; empty for losses."""
        return self.name.rpartition("/")[0] if self.kind in ("gradient", "step") else self.name

    @property
    def step(self) -> int | None:
        """After which update; None for what is seen at the initial weights."""
        digits = self.quantity.partition("/")[0].removeprefix("step")
        return int(digits) if digits.isdecimal() else None


def compare(
    expected: Expected, precision: str, arrays: Mapping[str, np.ndarray]
) -> list[Deviation]:
    """Every quantity of the case; one that should be there and is not is infinitely far."""
    deviations = []
    for quantity, truth in expected.truth.items():
        if quantity == "rate" or (quantity.startswith("output/") and quantity not in arrays):
            continue
        if quantity.startswith("step") and quantity.partition("/")[2].startswith(_ADDED_LAYERS):
            continue
        if quantity.endswith(("test_loss", "losses")) and not truth.max() < CAFFE_LARGEST_LOSS / 2:
            continue
        error = float("inf")
        if quantity in arrays and arrays[quantity].shape == truth.shape:
            with np.errstate(over="ignore", invalid="ignore"):  # then it is infinite, or NaN
                error = float(np.linalg.norm(arrays[quantity] - truth))
        size = float(np.linalg.norm(truth))
        allowed = allowed_distance(precision, expected.max_rounding(quantity), size)
        deviations.append(Deviation(expected.case, precision, quantity, error, allowed, size))
    return deviations


def allowed_distance(precision: str, rounding: float, size: float) -> float:
    """The largest distance from the truth that rounding explains.

    `rounding` is what the precision was seen to do, `size` the truth's norm. Of float64 it is
    what float32 was seen to do, and float64 does the same with 2^-29 of the size.
    """
    if precision == "float64":
        return SAFETY * rounding * (_EPSILON_FLOAT64 / _EPSILON_FLOAT32) + _FLOAT64_TOLERANCE * size
    return SAFETY * rounding + _RESULT_ULPS * _EPSILON_FLOAT32 * size
