"""LARS and warm-up (see `xfbench.workloads.solver`) on the gradients, as Caffe has neither.

Between the backward pass and Caffe's own update, on its blobs: decay is added here, where it
is scaled with the gradient, and Caffe's solver has none. Policy, momentum and multipliers of
the rate stay Caffe's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xfbench.workloads.layers import Parameter
from xfbench.workloads.solver import Solver


class Scale:
    """Each learned parameter's gradient, decay added, times what its rate is multiplied by."""

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
                factor *= _trust(self.solver.lars, decay, weight, gradient)
            gradient[...] = (gradient + np.float32(decay) * weight) * np.float32(factor)


def _trust(lars: float, decay: float, weight: np.ndarray, gradient: np.ndarray) -> float:
    """Return the factor by which LARS multiplies the rate."""
    size, slope = float(np.linalg.norm(weight)), float(np.linalg.norm(gradient))
    return lars * size / (slope + decay * size) if size and slope else 1.0
