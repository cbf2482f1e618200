"""Changes to gradients before the step of PyTorch's SGD: LARS, and the loss scale of float16.

PyTorch has no LARS (see `xfbench.workloads.solver`).

- LARS scales a gradient together with its weight decay. Therefore this module adds the decay, and
  SGD adds none.
- SGD uses one learning rate for all parameters of a parameter group. Therefore the trust ratio
  multiplies the gradient of a parameter instead of its learning rate.
"""

from __future__ import annotations

from typing import Any

import torch

from xfbench.worker.protocol import LOSS_SCALE, Options
from xfbench.workloads.layers import Network
from xfbench.workloads.solver import Solver

_NEVER = 2**30  # steps


def create_gradient_scaler(options: Options) -> torch.amp.GradScaler:
    """Return PyTorch's gradient scaler. It is enabled only if the precision is float16.

    The loss scale starts at LOSS_SCALE and does not grow. If a gradient is not finite, the scaler
    skips the update and halves the loss scale.
    """
    return torch.amp.GradScaler(
        options.device, LOSS_SCALE, growth_interval=_NEVER, enabled=options.precision == "float16"
    )


class Scale:
    """LARS on gradients: adds weight decay to each gradient, then multiplies by the trust ratio.

    `tensors` has the network's parameters by name. Their gradients are changed in place.
    """

    def __init__(self, network: Network, solver: Solver, tensors: dict[str, Any]) -> None:
        learned = {name: how for name, how in network.parameters.items() if how.learned}
        self.trust = solver.lars
        self.weights = [tensors[name] for name in learned]
        self.decay = [solver.weight_decay * how.decay_mult for how in learned.values()]
        like = self.weights[0]
        self.decays = torch.tensor(self.decay, dtype=like.dtype, device=like.device)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def __call__(self) -> None:
        gradients = [weight.grad for weight in self.weights]
        sizes = torch.stack(torch._foreach_norm(self.weights))
        slopes = torch.stack(torch._foreach_norm(gradients))
        trusted = self.trust * sizes / (slopes + self.decays * sizes)
        trusted = torch.where((sizes == 0) | (slopes == 0), torch.ones_like(sizes), trusted)
        for gradient, weight, decay, factor in zip(gradients, self.weights, self.decay, trusted):
            gradient.add_(weight, alpha=decay).mul_(factor)
