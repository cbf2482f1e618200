"""Changes to gradients before PyTorch's SGD: LARS, which PyTorch lacks, and float16's scale.

LARS (see `xfbench.workloads.solver`) adds decay here, where it is scaled with the gradient; SGD
has no decay then. The rate stays a number of the parameter groups, so that the momentum buffer
is the same as without LARS.
"""

from __future__ import annotations

from typing import Any

import torch

from xfbench.worker.protocol import LOSS_SCALE, Options
from xfbench.workloads.layers import Network
from xfbench.workloads.solver import Solver

_NEVER = 2**30  # steps


def create_gradient_scaler(options: Options) -> torch.amp.GradScaler:
    """Return PyTorch's gradient scaler, which skips an update with a gradient that is not finite.

    It starts from LOSS_SCALE, is halved on a skip and does not grow. It does nothing in other
    precisions than float16.
    """
    return torch.amp.GradScaler(
        options.device, LOSS_SCALE, growth_interval=_NEVER, enabled=options.precision == "float16"
    )


class Scale:
    """Scale each learned parameter's gradient, with decay added, by LARS's factor of its rate."""

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
