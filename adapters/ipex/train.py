"""The trainer of Intel's extension: PyTorch's trainer, changed by `ipex.optimize`.

The extension replaces the convolutions and the optimiser's step. It packs the weights of
convolutions in oneDNN's blocked layout. In float64 it packs no weights and replaces only the
optimiser's step. By default, the extension computes with channels last. The kernel "onednn" turns
channels last off.
"""

from __future__ import annotations

from typing import Any

import intel_extension_for_pytorch as ipex
import torch

from xfbench.adapters.torch.train import TorchTrainer
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> IpexTrainer:
    """Return a trainer for `network`.

    Both kernels use oneDNN: "channels_last" with channels last, and "onednn" with channels first.
    """
    return IpexTrainer(network, solver, options, group)


class IpexTrainer(TorchTrainer):
    """See `xfbench.worker.protocol.Trainer`."""

    def _apply_extension(self) -> None:
        if not self.channels_last:
            ipex.disable_auto_channels_last()
        self.graph.train()
        self.graph, self.optimizer = ipex.optimize(
            self.graph, dtype=self.dtype, optimizer=self.optimizer, inplace=True
        )
        packed = {
            id(part.weight): part.ctx for part in self.graph.modules() if hasattr(part, "ctx")
        }
        # By parameter name: the object that packs and unpacks the parameter, or None.
        self.blocks = {name: packed.get(id(tensor)) for name, tensor in self.tensors.items()}

    def _to_plain_layout(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        blocks = self.blocks[name]
        return tensor if blocks is None else blocks.to_public(tensor)

    def _to_packed_layout(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        blocks = self.blocks[name]
        return tensor if blocks is None else blocks.pack(tensor)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def load_network_state(self, state: dict[str, Any]) -> None:
        """Restore the graph from `state`, its `state_dict`, by copying into its tensors.

        After `load_state_dict`, convolutions would still read the old biases (docs/findings.md).
        """
        named_tensors = {**dict(self.graph.named_parameters()), **dict(self.graph.named_buffers())}
        names = {id(tensor): name for name, tensor in self.tensors.items()}
        for key, value in state.items():
            name = names.get(id(named_tensors[key]))
            named_tensors[key].copy_(value if name is None else self._to_packed_layout(name, value))

    def runtime_info(self) -> dict[str, Any]:
        info = super().runtime_info()
        count = sum(blocks is not None for blocks in self.blocks.values())
        if self.convolutions and self.options.precision == "float32" and not count:
            info["kernel"] = "native"
        evidence = [*info["kernel_evidence"], f"ipex.optimize packed {count} weights"]
        return {**info, "framework_version": ipex.__version__, "kernel_evidence": evidence}
