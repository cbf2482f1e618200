"""The parameter update in JAX, as part of the compiled step. JAX has no optimiser of its own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xfbench.workloads.layers import Parameter
from xfbench.workloads.solver import Solver


def update_parameter(
    solver: Solver, parameter: Parameter, weight: Any, velocity: Any, rate: Any, gradient: Any
) -> tuple[Any, Any]:
    """Return (weight, velocity) after an update with `gradient`.

    `rate` is the learning rate before it is multiplied by `parameter.lr_mult`.
    """
    decay = solver.weight_decay * parameter.decay_mult
    rate = rate * parameter.lr_mult
    if solver.lars:
        rate = rate * _trust_ratio(solver.lars, decay, weight, gradient)
    if decay:
        gradient = gradient + decay * weight
    velocity = solver.momentum * velocity + rate * gradient
    return weight - velocity, velocity


def _trust_ratio(lars: float, decay: float, weight: Any, gradient: Any) -> Any:
    """Return the trust ratio of LARS. It is 1 if the weight or the gradient has the norm 0."""
    size, slope = jnp.linalg.norm(weight.ravel()), jnp.linalg.norm(gradient.ravel())
    is_scaled = (size > 0) & (slope > 0)
    return jnp.where(is_scaled, lars * size / jnp.where(is_scaled, slope + decay * size, 1), 1)
