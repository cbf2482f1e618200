"""How a network is trained: stochastic gradient descent in Caffe's convention.

    g = gradient + weight_decay * decay_mult * w
    v = momentum * v + learning_rate(t) * lr_mult * g
    w = w - v

With LARS (You, Gitman and Ginsburg 2017) each parameter's rate is multiplied by
lars * |w| / (|gradient| + weight_decay * decay_mult * |w|), in Euclidean norms; one that is
zero, or has no gradient, keeps its rate.

The learning rate is inside the velocity, so a change of rate acts on new gradients
only; several frameworks keep it outside, which differs as soon as the rate changes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Solver:
    """Learning-rate policy (fixed, step, inv, poly), momentum and weight decay.

    `stepsize` and `max_iter` count updates; `lars` is its trust coefficient, 0 for none.
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

    def learning_rate(self, iteration: int) -> float:
        """The rate of update number `iteration`, counted from 0 (Caffe's four policies).

        Raises ValueError for a policy that is none of them.
        """
        if self.policy == "fixed":
            return self.base_lr
        if self.policy == "step":
            return self.base_lr * self.gamma ** (iteration // self.stepsize)
        if self.policy == "inv":
            return float(self.base_lr * (1.0 + self.gamma * iteration) ** -self.power)
        if self.policy == "poly":
            return float(self.base_lr * (1.0 - iteration / self.max_iter) ** self.power)
        raise ValueError(f"unknown learning-rate policy {self.policy!r}")
