"""The solver: stochastic gradient descent in Caffe's convention.

    g = gradient + weight_decay * decay_mult * w
    v = momentum * v + learning_rate(t) * lr_mult * g
    w = w - v

With LARS (You, Gitman and Ginsburg 2017) each parameter's rate is multiplied by
lars * |w| / (|gradient| + weight_decay * decay_mult * |w|), in Euclidean norms. A parameter
that is zero or has no gradient keeps its rate. With gradual warm-up (Goyal et al. 2017) the
policy's rate is multiplied by 1/n, 2/n, … 1 in the first n updates.

The learning rate is inside the velocity, so a change of rate acts on new gradients only.
Several frameworks keep it outside, which differs as soon as the rate changes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Solver:
    """A learning-rate policy (fixed, step, inv, poly), momentum and weight decay.

    `stepsize`, `max_iter` and `warmup` count updates. `lars` is the trust coefficient of LARS.
    If `warmup` or `lars` is 0, it is off.
    """

    base_lr: float
    policy: str = "fixed"
    gamma: float = 0.0
    power: float = 0.0
    stepsize: int = 0
    max_iter: int = 0
    momentum: float = 0.9
    weight_decay: float = 0.0
    lars: float = 0.0
    warmup: int = 0

    def learning_rate(self, iteration: int) -> float:
        """Return the learning rate of update number `iteration`, counted from 0.

        Raises ValueError for a policy other than these four of Caffe.
        """
        return self._policy_rate(iteration) * self.warmup_factor(iteration)

    def warmup_factor(self, iteration: int) -> float:
        """Return the factor on the policy's rate: less than 1 only during the warm-up."""
        return min(1.0, (iteration + 1) / self.warmup) if self.warmup else 1.0

    def _policy_rate(self, iteration: int) -> float:
        if self.policy == "fixed":
            return self.base_lr
        if self.policy == "step":
            return self.base_lr * self.gamma ** (iteration // self.stepsize)
        if self.policy == "inv":
            return float(self.base_lr * (1.0 + self.gamma * iteration) ** -self.power)
        if self.policy == "poly":
            return float(self.base_lr * (1.0 - iteration / self.max_iter) ** self.power)
        raise ValueError(f"unknown learning-rate policy {self.policy!r}")
