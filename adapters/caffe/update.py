"""LARS and warm-up for Caffe, which has neither (see `xfbench.workloads.solver`).

This module changes the gradients in Caffe's blobs between the backward pass and Caffe's update.

- LARS and warm-up scale a gradient together with its weight decay. Therefore this module adds the
  decay, and Caffe's solver adds none.
- Caffe's solver still applies the learning-rate policy, the learning-rate multiplier of each
  parameter, and the momentum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xfbench.workloads.layers import Parameter
from xfbench.workloads.solver import Solver


class Scale:
    """LARS and warm-up on gradients.

    First adds weight decay to each gradient, then multiplies by the warm-up factor and the trust
    ratio. `learned` has (parameter, blob) of each learned parameter, by name.
    """

    def __init__(self, solver: Solver, learned: dict[str, tuple[Parameter, Any]]) -> None:
        self.solver, self.learned = solver, learned

    def __call__(self, iteration: int) -> None:
        """Add weight decay to the gradients and scale them, in place.

        `iteration` is the number of the update, counted from 0.
        """
        share = self.solver.warmup_factor(iteration)
        for how, blob in self.learned.values():
            weight, gradient = blob.data, blob.diff
            decay = self.solver.weight_decay * how.decay_mult
            factor = share
            if self.solver.lars:
                factor *= _trust_ratio(self.solver.lars, decay, weight, gradient)
            gradient[...] = (gradient + np.float32(decay) * weight) * np.float32(factor)


def _trust_ratio(lars: float, decay: float, weight: np.ndarray, gradient: np.ndarray) -> float:
    """Return the trust ratio of LARS. It is 1 if the weight or the gradient has the norm 0."""
    size, slope = float(np.linalg.norm(weight)), float(np.linalg.norm(gradient))
    return lars * size / (slope + decay * size) if size and slope else 1.0
