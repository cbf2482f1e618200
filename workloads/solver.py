"""The solver: stochastic gradient descent in Caffe's convention.

    g = gradient + weight_decay * decay_mult * w
    v = momentum * v + learning_rate(t) * lr_mult * g
    w = w - v

With LARS (You, Gitman and Ginsburg 2017), the learning rate of a parameter is multiplied by the
trust ratio of the parameter:

    lars * |w| / (|gradient| + weight_decay * decay_mult * |w|)

|w| and |gradient| are Euclidean norms. If one of them is 0, the trust ratio is 1.

With gradual warm-up (Goyal et al. 2017), the learning rates of the first n updates are multiplied
by 1/n, 2/n, … 1.

The velocity v includes the learning rate. Therefore a new learning rate does not change what
earlier updates added to v. In several frameworks, the velocity excludes the learning rate. Such a
framework gives other results as soon as the learning rate changes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Solver:
    """A learning-rate policy with momentum and weight decay, and optionally LARS and warm-up.

    - `policy`: "fixed", "step", "inv" or "poly", as in Caffe.
    - `stepsize`, `max_iter`: parameters of the policy, in updates.
    - `lars`: the trust coefficient of LARS; 0 means no LARS.
    - `warmup`: the length of the warm-up in updates; 0 means no warm-up.
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

        Raises ValueError for an unknown policy.
        """
        return self._policy_rate(iteration) * self.warmup_factor(iteration)

    def warmup_factor(self, iteration: int) -> float:
        """Return the warm-up factor of an update, which multiplies the learning rate.

        `iteration` is the number of the update, counted from 0. The factor rises from 1/`warmup` to
        1 during the warm-up. It is 1 afterwards, or without warm-up.
        """
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
