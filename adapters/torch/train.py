"""The translation into PyTorch: eager modules, its own optimiser, channels first.

Rules: translate and nothing else. PyTorch keeps the learning rate outside the momentum
buffer, so when the rate changes the buffer is rescaled to stay what Caffe's would be.
bfloat16 is its autocast: parameters stay in float32.
"""

from __future__ import annotations

import atexit
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.nn import functional

from xfbench.adapters.torch import checkpoint, update
from xfbench.worker import observe
from xfbench.worker.distributed import addresses
from xfbench.worker.mpi import AllReduce
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True

_PARAMETERS = {
    "weight": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "mean": "running_mean",
    "variance": "running_var",
}


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> TorchTrainer:
    """A trainer for `network`; kernel "onednn" (CPU), "cudnn" (CUDA) or "native", without them."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    torch.backends.mkldnn.enabled = options.kernel == "onednn"
    torch.backends.cudnn.enabled = options.kernel == "cudnn"
    # By default cuDNN computes in TF32 what is asked for in float32.
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    _meet(group, options.device)
    return TorchTrainer(network, solver, options, group)


def _meet(group: Group, device: str) -> None:
    """Find the other ranks, once in a process; on CUDA each has a device of its own."""
    if group.strategy != "ddp" or distributed.is_initialized():
        return
    if device == "cuda":
        torch.cuda.set_device(group.rank % torch.cuda.device_count())
    distributed.init_process_group(
        group.options["backend"],
        init_method=f"tcp://{addresses(group)[0]}",
        rank=group.rank,
        world_size=group.size,
    )
    # Its threads may still hold tensors, which must not outlive the interpreter.
    atexit.register(distributed.destroy_process_group)


def _parallel(graph: nn.Module, group: Group) -> nn.Module:
    """DDP, which joins gradients in buckets; its own size of them is None."""
    size = group.options["bucket_size"]
    parallel = nn.parallel.DistributedDataParallel(
        graph,
        # Every rank keeps the running averages of its own part, as the other frameworks do.
        forward_sync_buffers=False,
        bucket_cap_mb=None if size == "auto" else size / 2**20,
    )
    if group.options["overlap"] == "off":
        # DDP looks at a hook's annotations, and takes none that are text.
        parallel.register_comm_hook(
            [],
            lambda waiting, bucket: _after_backward(waiting, bucket),  # noqa: PLW0108
        )
    return parallel


def _after_backward(waiting: list[Any], bucket: Any) -> Any:
    """Joins no bucket before the last one is full, which holds the first layers' gradients."""
    device = bucket.buffer().device
    future: Any = torch.futures.Future(devices=[device] if device.type == "cuda" else None)
    waiting.append((bucket.buffer(), future))
    if bucket.is_last():
        for gradients, done in waiting:
            distributed.all_reduce(gradients.div_(distributed.get_world_size()))
            done.set_result(gradients)
        waiting.clear()
    return future


class _LRN(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: xl.LRN) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.layer
        if layer.region == "across":
            return functional.local_response_norm(x, layer.size, layer.alpha, layer.beta, layer.k)
        squares = functional.avg_pool2d(x * x, layer.size, stride=1, padding=layer.size // 2)
        return x / (layer.k + layer.alpha * squares) ** layer.beta


class _Graph(nn.Module):  # type: ignore[misc]
    """Runs the layers in order; returns the weighted loss and the main head's scores.

    A value is let go once its last reader has it: memory that stays is memory to be paged in.
    `seen`, where it is given, takes every layer's output.
    """

    def __init__(self, network: xl.Network, dropout: bool) -> None:
        super().__init__()
        self.network = network
        last = {name: layer.name for layer in network.layers for name in layer.inputs}
        self.done_after: dict[str, list[str]] = {layer.name: [] for layer in network.layers}
        for name, reader in last.items():
            if name != network.scores:
                self.done_after[reader].append(name)
        self.parts = nn.ModuleList(
            _module(layer, network.input_shapes(layer), dropout) for layer in network.layers
        )

    def forward(
        self, images: torch.Tensor, labels: torch.Tensor, seen: dict[str, Any] | None = None
    ) -> tuple[Any, torch.Tensor]:
        values = {"data": images}
        total: Any = 0.0
        for layer, part in zip(self.network.layers, self.parts):
            inputs = [values[name] for name in layer.inputs]
            if isinstance(layer, xl.SoftmaxLoss):
                total = total + layer.weight * functional.cross_entropy(inputs[0], labels)
            elif isinstance(layer, xl.Concat):
                values[layer.name] = torch.cat(inputs, dim=1)
            elif isinstance(layer, xl.Eltwise):
                values[layer.name] = sum(inputs[1:], inputs[0])
            elif isinstance(layer, xl.InnerProduct):
                values[layer.name] = part(inputs[0].flatten(1))
            else:
                values[layer.name] = part(inputs[0])
            if seen is not None:
                seen.update(values)
            del inputs
            for name in self.done_after[layer.name]:
                del values[name]
        return total, values[self.network.scores]


def _module(layer: xl.Layer, inputs: list[xl.Shape], dropout: bool) -> nn.Module:
    if isinstance(layer, xl.Convolution):
        return nn.Conv2d(
            inputs[0][0],
            layer.channels,
            layer.kernel,
            layer.stride,
            layer.pad,
            groups=layer.groups,
            bias=layer.bias,
        )
    if isinstance(layer, xl.InnerProduct):
        return nn.Linear(int(np.prod(inputs[0])), layer.channels, bias=layer.bias)
    if isinstance(layer, xl.Pooling) and layer.method == "max":
        return nn.MaxPool2d(layer.kernel, layer.stride, layer.pad, ceil_mode=True)
    if isinstance(layer, xl.Pooling):
        return nn.AvgPool2d(layer.kernel, layer.stride, layer.pad, ceil_mode=True)
    if isinstance(layer, xl.ReLU):
        return nn.ReLU()
    if isinstance(layer, xl.LRN):
        return _LRN(layer)
    if isinstance(layer, xl.Dropout):
        return nn.Dropout(layer.ratio) if dropout else nn.Identity()
    if isinstance(layer, xl.BatchNorm):
        return nn.BatchNorm2d(inputs[0][0], eps=layer.eps, momentum=1 - layer.momentum)
    return nn.Identity()  # Concat, Eltwise and SoftmaxLoss are done by the graph


class TorchTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    def __init__(self, network: xl.Network, solver: Solver, options: Options, group: Group) -> None:
        self.solver, self.options = solver, options
        self.device = torch.device(options.device)
        self.dtype = torch.float64 if options.precision == "float64" else torch.float32
        self.graph = _Graph(network, options.dropout == "random").to(self.device, self.dtype)
        parts = {layer.name: part for layer, part in zip(network.layers, self.graph.parts)}
        self.parallel = _parallel(self.graph, group) if group.strategy == "ddp" else None
        self.training: Any = self.parallel or self.graph
        self.tensors: dict[str, torch.Tensor] = {}
        for name in network.parameters:
            layer_name, _, kind = name.rpartition("/")
            self.tensors[name] = getattr(parts[layer_name], _PARAMETERS[kind])
        self.learned = [name for name, p in network.parameters.items() if p.learned]
        groups: dict[tuple[float, float], list[torch.Tensor]] = {}
        for name in self.learned:
            parameter = network.parameters[name]
            key = (parameter.lr_mult, parameter.decay_mult)
            groups.setdefault(key, []).append(self.tensors[name])
        self.optimizer = torch.optim.SGD(
            [
                {
                    "params": tensors,
                    "lr_mult": lr_mult,
                    "weight_decay": 0.0 if solver.lars else solver.weight_decay * decay_mult,
                }
                for (lr_mult, decay_mult), tensors in groups.items()
            ],
            lr=solver.base_lr,
            momentum=solver.momentum,
            fused=True,
        )
        self.scale: Any = update.Scale(network, solver, self.tensors) if solver.lars else None
        self.joined: Any = AllReduce(group) if group.strategy == "mpi" else None
        self.iteration = 0
        self.batch: Any = None
        self.passed: Any = None
        self.convolutions = any(isinstance(layer, xl.Convolution) for layer in network.layers)
        self.rate = 0.0
        self.last_loss = torch.zeros(())

    def load(self, images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            torch.from_numpy(images).to(self.device, self.dtype),
            torch.from_numpy(labels).to(self.device),
        )

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.batch = batch
        self._set_rate(self.solver.learning_rate(self.iteration))
        self.last_loss = self._backward(batch)
        if self.scale:
            self.scale()
        self.optimizer.step()
        self.iteration += 1

    def wait(self) -> float:
        return float(self.last_loss)

    def loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
        return float(self._test(batch)[0])

    def scores(self, batch: tuple[torch.Tensor, torch.Tensor]) -> np.ndarray:
        return _host(self._test(batch)[1])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def outputs(self, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, np.ndarray]:
        self.graph.train()
        seen: dict[str, Any] = {}
        self._forward(self.graph, batch, seen)
        return {name: _host(value) for name, value in seen.items()}

    def gradients(self, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, np.ndarray]:
        self._backward(batch)
        return {name: _host(self.tensors[name].grad) for name in self.learned}

    def parameters(self) -> dict[str, np.ndarray]:
        return {name: _host(tensor) for name, tensor in self.tensors.items()}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(parameters[name])))

    def apart(self) -> None:
        self.training, self.joined = self.graph, None

    def save(self, folder: Path) -> None:
        checkpoint.save(self, folder)

    def restore(self, folder: Path) -> None:
        checkpoint.restore(self, folder)

    def observed(self) -> dict[str, Any]:
        kernel, evidence = self._seen()
        return {
            "framework_version": torch.__version__,
            "layout": "NCHW",
            "precision": self._precision(),
            "kernel": kernel,
            "kernel_evidence": evidence,
            "pools": {"intra-op": torch.get_num_threads()},
            "exchange": self._joined(),
        }

    def _joined(self) -> list[str]:
        """What DDP says of itself."""
        if not self.parallel:
            return []
        told = self.parallel._get_ddp_logging_data()
        sizes = told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes", "unknown")
        hook = told.get("comm_hook", "none")
        return [f"{told['backend_name']}, buckets of {sizes} bytes, communication hook: {hook}"]

    def _precision(self) -> str:
        passed = str(self.passed or self.dtype).rpartition(".")[2]
        rounded = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
        return "tf32" if passed == "float32" and self.device.type == "cuda" and rounded else passed

    def _seen(self) -> tuple[str, list[str]]:
        """The kernel, and how it is known: by what oneDNN and MKL say they run in a step."""
        if self.device.type == "cuda":
            enabled = torch.backends.cudnn.enabled and torch.backends.cudnn.is_available()
            flag = f"torch.backends.cudnn.enabled is {enabled}"
            shown = ["requested, not shown", flag, f"version {torch.backends.cudnn.version()}"]
            return "cudnn" if enabled else "native", shown
        enabled = torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()
        flagged = "onednn" if enabled else "native"
        evidence = [f"torch.backends.mkldnn.enabled is {enabled}"]
        ran = self._ran() if self.batch is not None else None
        if ran is not None:
            evidence += [f"{library} ran {name} ×{n}" for (library, name), n in sorted(ran.items())]
        computed = [name for library, name in ran or () if library == "oneDNN"]
        # Of other precisions oneDNN computes what this processor has instructions for, if any.
        if ran is None or self.options.precision != "float32" or not self.convolutions:
            return flagged, ["requested, not shown", *evidence]
        return "onednn" if set(computed) - {"reorder"} else "native", evidence

    def _ran(self) -> Counter[tuple[str, str]]:
        """What oneDNN and MKL say that they run in a step, by library and name."""
        verbose = torch.backends.mkldnn.verbose(1), torch.backends.mkl.verbose(1)
        with observe.printed() as lines, verbose[0], verbose[1]:
            self._backward(self.batch)
        ran: Counter[tuple[str, str]] = Counter()
        for line in lines:
            words = line.split(",")
            if words[0] == "onednn_verbose" and "exec" in words[:4]:
                ran["oneDNN", words[5]] += 1
            elif line.startswith("MKL_VERBOSE") and "NThr:" in line:
                ran["MKL", line.split()[1].partition("(")[0]] += 1
        return ran

    def _backward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        if not self.graph.training:
            self.graph.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss, scores = self._forward(self.training, batch)
        self.passed = scores.dtype
        loss.backward()
        if self.joined:
            gradients = [self.tensors[name].grad for name in self.learned]
            means = self.joined.mean([gradient.cpu().numpy() for gradient in gradients])
            for gradient, mean in zip(gradients, means):
                gradient.copy_(torch.from_numpy(mean))
        return loss.detach()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _test(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, torch.Tensor]:
        self.graph.eval()
        return self._forward(self.graph, batch)

    def _forward(
        self,
        graph: Any,
        batch: tuple[torch.Tensor, torch.Tensor],
        seen: dict[str, Any] | None = None,
    ) -> tuple[Any, torch.Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16, self.options.precision == "bfloat16"):
            loss, scores = graph(*batch, seen)
        return loss, scores

    def _set_rate(self, rate: float) -> None:
        if rate == self.rate:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["lr_mult"]
        buffers = [
            state["momentum_buffer"]
            for state in self.optimizer.state.values()
            if state.get("momentum_buffer") is not None
        ]
        if buffers:
            torch._foreach_mul_(buffers, self.rate / rate)
        self.rate = rate


def _host(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # which NumPy has not
        tensor = tensor.float()
    array: np.ndarray = tensor.numpy().copy()
    return array
