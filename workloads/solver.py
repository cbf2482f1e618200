"""How a network is trained: stochastic gradient descent in Caffe's convention.

    g = gradient + weight_decay * decay_mult * w
    v = momentum * v + learning_rate(t) * lr_mult * g
    w = w - v

With LARS (You, Gitman and Ginsburg 2017) each parameter's rate is multiplied by
lars * |w| / (|gradient| + weight_decay * decay_mult * |w|), in Euclidean norms; one that is
zero, or has no gradient, keeps its rate. With gradual warm-up (Goyal et al. 2017) the rate
of its policy is multiplied by 1/n, 2/n, … 1 in the first n updates.

The learning rate is inside the velocity, so a change of rate acts on new gradients
only; several frameworks keep it outside, which differs as soon as the rate changes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Solver:
    """Learning-rate policy (fixed, step, inv, poly), momentum and weight decay.

    `stepsize`, `max_iter` and `warmup` count updates; `lars` is its trust coefficient. 0 of
    these two is none.
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
        """The rate of update number `iteration`, counted from 0.

        Raises ValueError for a policy that is none of Caffe's four.
        """
        return self._policy_rate(iteration) * self.warmup_factor(iteration)

    def warmup_factor(self, iteration: int) -> float:
        """How much of its policy's rate an update has: less than 1 in the warm-up alone."""
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
