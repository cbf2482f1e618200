"""The parameter update in TensorFlow, by its own momentum operation.

Ranks and parameter servers use it. The operation's velocity includes the learning rate, as in
`xfbench.workloads.solver`. TensorFlow has no LARS, so this module computes the trust ratio.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xfbench.workloads.layers import Parameter
from xfbench.workloads.solver import Solver


def update_parameter(
    solver: Solver, parameter: Parameter, weight: Any, velocity: Any, rate: Any, gradient: Any
) -> Any:
    """Update the variables `weight` and `velocity` with `gradient`.

    `rate` is the learning rate before it is multiplied by `parameter.lr_mult`. While a graph is
    built, return the operation that updates the variables. In eager mode, return None.
    """
    decay = solver.weight_decay * parameter.decay_mult
    rate = rate * parameter.lr_mult
    if solver.lars:
        rate *= _trust_ratio(solver.lars, decay, weight, gradient)
    return tf.raw_ops.ResourceApplyKerasMomentum(
        var=weight.handle,
        accum=velocity.handle,
        lr=rate,
        grad=gradient + decay * weight if decay else gradient,
        momentum=tf.constant(solver.momentum, gradient.dtype),
    )


def _trust_ratio(lars: float, decay: float, weight: Any, gradient: Any) -> Any:
    """Return the trust ratio of LARS. It is 1 if the weight or the gradient has the norm 0."""
    size, slope = tf.norm(weight), tf.norm(gradient)
    is_scaled = tf.logical_and(size > 0, slope > 0)
    return tf.where(is_scaled, lars * size / (slope + decay * size), tf.ones_like(size))
