"""Compare what a framework computed with what the oracle expects.

The tolerance of each number is SAFETY times the effect of rounding on that number, plus a small
minimum. SAFETY is the same for all frameworks, layers and precisions, without exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xfbench.equality.cases import Case
from xfbench.equality.oracle import Expected
from xfbench.model.certificate import SAFETY
from xfbench.worker import folding

# Minimum tolerance in units of float32: all draws may happen to be close to the truth, but the
# result itself is rounded.
_RESULT_ULPS = 32.0
_EPSILON_FLOAT32, _EPSILON_FLOAT64 = 2.0**-23, 2.0**-52
# Name prefixes of layers that only make other layers testable. Their updates are not compared.
_ADDED_LAYERS = ("probe/", "stem")
_FLOAT64_TOLERANCE = (
    1e-8  # relative: far above float64's rounding, far below the error of a different network
)
# Caffe clamps probabilities at the smallest normal float32, so its loss per image is at most 87.3.
# Losses above half of this limit are compared only through the scores.
CAFFE_LARGEST_LOSS = 87.3


@dataclass(frozen=True)
class Deviation:
    """The distance of one quantity of one case from the truth. All distances are norms.

    - `quantity`: a name such as "gradient/conv1/weight" or "losses"
    - `error`: the distance of the result from the truth
    - `allowed`: the largest distance within tolerance
    - `size`: the norm of the truth
    """

    case: Case
    precision: str
    quantity: str
    error: float
    allowed: float
    size: float

    @property
    def is_within_tolerance(self) -> bool:
        """Whether the error is at most the allowed error. False if the error is NaN."""
        return self.error <= self.allowed

    @property
    def excess(self) -> float:
        """The error as a multiple of the allowed error.

        The value is infinite if the quantity is missing or not finite, and 0 if the error is 0.
        """
        if self.error == 0.0:
            return 0.0
        excess = self.error / self.allowed if self.allowed else float("inf")
        return float(excess) if np.isfinite(excess) else float("inf")

    @property
    def relative_error(self) -> float:
        """The error divided by the truth's norm.

        If the norm is at most the allowed error, the truth itself may be only rounding. Then the
        value is the error without division.
        """
        return self.error / self.size if self.size > self.allowed else self.error

    @property
    def tolerance(self) -> float:
        """The allowed error, divided by the truth's norm if `relative_error` is."""
        return self.allowed / self.size if self.size > self.allowed else self.allowed

    @property
    def kind(self) -> str:
        """The kind of quantity: gradient, output, step, losses, test_loss or test_scores."""
        kind = self.quantity.partition("/")[0].rstrip("0123456789")
        return kind.removeprefix("trained_")

    @property
    def name(self) -> str:
        """The name of the quantity's parameter or layer; empty for losses and test scores."""
        return self.quantity.partition("/")[2]

    @property
    def layer(self) -> str:
        """The name of the quantity's layer; empty for losses and test scores."""
        return self.name.rpartition("/")[0] if self.kind in ("gradient", "step") else self.name

    @property
    def step(self) -> int | None:
        """The number of the update; None for quantities at the initial weights."""
        digits = self.quantity.partition("/")[0].removeprefix("step")
        return int(digits) if digits.isdecimal() else None


def compare(
    expected: Expected, precision: str, arrays: Mapping[str, np.ndarray]
) -> list[Deviation]:
    """Return the deviation of each compared quantity. A missing quantity has an infinite error.

    `arrays` has the framework's results by quantity. These quantities are not compared:

    - layer outputs that the framework does not provide
    - updates of probes and stems, which are not layers of the workload
    - losses above half of CAFFE_LARGEST_LOSS, because Caffe limits each image's loss
    - all but gradients of parameters with a learning rate, if the case is a timed batch
    """
    case = expected.case
    deviations = []
    for quantity, truth in expected.truth.items():
        if quantity == "rate" or (quantity.startswith("output/") and quantity not in arrays):
            continue
        if case.timed_batch_size is not None and not _is_compared_in_timed_batch(case, quantity):
            continue
        if quantity.startswith("step") and quantity.partition("/")[2].startswith(_ADDED_LAYERS):
            continue
        if quantity.endswith(("test_loss", "losses")) and not truth.max() < CAFFE_LARGEST_LOSS / 2:
            continue
        error = float("inf")
        if quantity in arrays:
            error = _distance(arrays[quantity], truth, quantity)
        size = float(np.linalg.norm(truth))
        allowed = allowed_distance(precision, expected.max_distance_over_draws(quantity), size)
        if case.timed_batch_size is not None and precision != "float64":  # there, it is negligible
            allowed += case.limit_of_sum(quantity.partition("/")[2]) * size
        deviations.append(Deviation(case, precision, quantity, error, allowed, size))
    return deviations


def _distance(result: np.ndarray, truth: np.ndarray, quantity: str) -> float:
    """Return the distance of a result, which may be folded. It is infinite for another shape."""
    if folding.is_folded(quantity) and result.shape == (folding.WIDTH,) != truth.shape:
        truth = folding.fold(truth)
    if result.shape != truth.shape:
        return float("inf")
    with np.errstate(over="ignore", invalid="ignore"):  # a result may be infinite or NaN
        return float(np.linalg.norm(result - truth))


def _is_compared_in_timed_batch(case: Case, quantity: str) -> bool:
    """Return whether the quantity is a gradient. It is read from the change of its parameter."""
    kind, _, name = quantity.partition("/")
    return kind == "gradient" and case.workload.network.parameters[name].lr_mult > 0


def allowed_distance(precision: str, rounding: float, size: float) -> float:
    """Return the largest distance from the truth that rounding explains.

    - `rounding`: the measured rounding, as a distance. For float64, pass the rounding of float32.
      This function divides it by 2**29, the ratio of the two precisions.
    - `size`: the norm of the truth
    """
    if precision == "float64":
        return SAFETY * rounding * (_EPSILON_FLOAT64 / _EPSILON_FLOAT32) + _FLOAT64_TOLERANCE * size
    return SAFETY * rounding + _RESULT_ULPS * _EPSILON_FLOAT32 * size
