"""Apply LARS and warm-up (see `xfbench.workloads.solver`) to gradients, as Caffe has neither.

This runs on Caffe's blobs between the backward pass and Caffe's own update. Decay is added
here, because it is scaled with the gradient; Caffe's solver has no decay then. Caffe still
applies the policy, momentum and the multipliers of the rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xfbench.workloads.layers import Parameter
from xfbench.workloads.solver import Solver


class Scale:
    """Scale each learned parameter's gradient, with decay added, by the factor of its rate."""

    def __init__(self, solver: Solver, learned: dict[str, tuple[Parameter, Any]]) -> None:
        self.solver, self.learned = solver, learned

    def __call__(self, iteration: int) -> None:
        """Scale the gradients of update number `iteration`, counted from 0."""
        share = self.solver.warmup_factor(iteration)
        for how, blob in self.learned.values():
            weight, gradient = blob.data, blob.diff
            decay = self.solver.weight_decay * how.decay_mult
            factor = share
            if self.solver.lars:
                factor *= _trust_ratio(self.solver.lars, decay, weight, gradient)
            gradient[...] = (gradient + np.float32(decay) * weight) * np.float32(factor)


def _trust_ratio(lars: float, decay: float, weight: np.ndarray, gradient: np.ndarray) -> float:
    """Return the factor by which LARS multiplies the rate."""
    size, slope = float(np.linalg.norm(weight)), float(np.linalg.norm(gradient))
    return lars * size / (slope + decay * size) if size and slope else 1.0
