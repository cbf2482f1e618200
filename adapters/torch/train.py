"""The trainer of PyTorch: eager or compiled modules with PyTorch's optimiser.

Caffe's velocity includes the learning rate, but PyTorch's momentum buffer does not. The trainer
therefore rescales the buffer when the learning rate changes. Training in bfloat16 or float16 uses
autocast and keeps the parameters in float32. Training in float16 also uses the gradient scaler.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch
from torch import nn

from xfbench.adapters.torch import checkpoint, compiled, exchange, profile, update
from xfbench.adapters.torch.device import BatchCopier
from xfbench.adapters.torch.graph import Graph
from xfbench.adapters.torch.profile import GpuCalls
from xfbench.worker import observe, rounding
from xfbench.worker.mpi import AllReduce
from xfbench.worker.protocol import Group, Options, Profile, Unavailable, Unsupported
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True

_COMPILED = ("inductor", "cuda_graphs")
_LAST = ("channels_last", *_COMPILED)
_ONEDNN = ("onednn", "channels_last", "inductor")
_CUDNN = ("cudnn", "cudnn_deterministic", *_LAST)
_OLDER_INTERFACE = "TORCH_CUDNN_V8_API_DISABLED"
_CAME_LAST = "values between layers are channels last in memory"
_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_PARAMETERS = {
    "weight": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "mean": "running_mean",
    "variance": "running_var",
}


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> TorchTrainer:
    """Return a trainer for `network`.

    Kernels:

    - "onednn": oneDNN on the CPU, channels first.
    - "cudnn": cuDNN on CUDA, channels first.
    - "cudnn_deterministic": like "cudnn", with the default algorithm of each convolution.
    - "channels_last": oneDNN or cuDNN, channels last.
    - "inductor": oneDNN or cuDNN, channels last. TorchInductor compiles the training.
    - "cuda_graphs": like "inductor" on CUDA, and the kernels are launched as CUDA graphs.
    - "native": PyTorch's own kernels, channels first.

    Raises Unavailable if `options.device` is "cuda" and PyTorch finds no NVIDIA device.
    """
    return TorchTrainer(network, solver, options, group)


class TorchTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    def __init__(self, network: xl.Network, solver: Solver, options: Options, group: Group) -> None:
        _set_process_options(options)
        exchange.select_gpu_and_connect_ddp_ranks(group, options.device)
        if options.device == "cuda":
            exchange.require_precision(options.precision)
        self.solver, self.options = solver, options
        self.device = torch.device(options.device)
        self.dtype = torch.float64 if options.precision == "float64" else torch.float32
        self.channels_last = options.kernel in _LAST
        self.form = torch.channels_last if self.channels_last else torch.contiguous_format
        self.copier = BatchCopier(self.device, self.dtype, self.form)
        graph = Graph(network, options.dropout == "random")
        self.graph = graph.to(self.device, self.dtype, memory_format=self.form)
        parts = {layer.name: part for layer, part in zip(network.layers, self.graph.parts)}
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
        self._apply_extension()
        self.parallel = exchange.wrap_in_ddp(self.graph, group) if group.strategy == "ddp" else None
        self.training: Any = self._compile_if_inductor(self.parallel or self.graph)
        self.scaler = update.create_gradient_scaler(options)
        self.scale: Any = update.Scale(network, solver, self.tensors) if solver.lars else None
        with_mpi = group.strategy == "mpi"
        self.joined: Any = exchange.MpiExchange(AllReduce(group)) if with_mpi else None
        self.with_exchange: Any = None  # `training` and `joined` before `disable_sync`
        self.through_host = with_mpi and options.device == "cuda"
        self.iteration = 0
        self.batch: Any = None
        self.has_new_batches = False  # whether a step has another batch than the step before
        self.gpu_calls: GpuCalls | None = None
        self.passed: Any = None
        self.gradient_function = ""
        self.convolutions = any(isinstance(layer, xl.Convolution) for layer in network.layers)
        self.rate = 0.0
        self.last_loss = torch.zeros(())

    def load(self, images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return self.copier.copy(torch.from_numpy(images), torch.from_numpy(labels))

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        if batch is not self.batch:
            self.copier.limit_steps_ahead()
            self.has_new_batches = self.batch is not None
        self.batch = batch
        self._set_rate_and_rescale_momentum(self.solver.learning_rate(self.iteration))
        self.last_loss = self._forward_backward_and_average_gradients(batch)
        if self.scale:
            self.scaler.unscale_(self.optimizer)
            self.scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.iteration += 1

    def wait_for_loss(self) -> float:
        return float(self.last_loss)

    def test_loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
        return float(self._test_loss_and_scores(batch)[0])

    def test_scores(self, batch: tuple[torch.Tensor, torch.Tensor]) -> np.ndarray:
        return _host(self._test_loss_and_scores(batch)[1])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def layer_outputs(self, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, np.ndarray]:
        self.graph.train()
        outputs: dict[str, Any] = {}
        self._loss_and_scores(self.graph, batch, outputs)
        return {name: _host(value) for name, value in outputs.items()}

    def gradients(self, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, np.ndarray]:
        if self.device.type == "cuda":
            self.batch = batch  # so that `runtime_info` shows the kernels of this batch
        if self.options.kernel == "cuda_graphs":  # the third call is the first that is replayed
            for _ in range(2):
                self._forward_backward_and_average_gradients(batch)
        self._forward_backward_and_average_gradients(batch)
        gradients = {
            name: self._to_plain_layout(name, self.tensors[name].grad) for name in self.learned
        }
        return {
            name: _host(gradient / self.scaler.get_scale()) for name, gradient in gradients.items()
        }

    def device_uuid(self) -> str | None:
        if self.options.device != "cuda":
            return None
        uuid = getattr(torch.cuda.get_device_properties(self.device), "uuid", None)
        return str(uuid) if uuid else None  # None: an old version of PyTorch

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            name: _host(self._to_plain_layout(name, tensor))
            for name, tensor in self.tensors.items()
        }

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        for name, tensor in self.tensors.items():
            plain = torch.from_numpy(np.ascontiguousarray(parameters[name]))
            tensor.copy_(self._to_packed_layout(name, plain))

    def end_compile_processes(self) -> None:
        if self.options.kernel in _COMPILED:
            compiled.end_compile_processes()

    def restart_peak_device_memory(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak_device_memory(self) -> dict[str, int | None]:
        if self.device.type != "cuda":
            return {}
        return {
            "peak_device_bytes": torch.cuda.max_memory_allocated(),
            "peak_device_reserved_bytes": torch.cuda.max_memory_reserved(),
        }

    def disable_sync(self) -> None:
        self.with_exchange = self.training, self.joined
        self.training, self.joined = self._compile_if_inductor(self.graph), None

    def save(self, folder: Path) -> None:
        checkpoint.save(self, folder)

    def restore(self, folder: Path) -> None:
        checkpoint.restore(self, folder)

    def load_network_state(self, state: dict[str, Any]) -> None:
        """Restore the graph from `state`, its `state_dict`."""
        self.graph.load_state_dict(state)

    def profile(
        self, batch: Any, run_steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        if (kernel := self.options.kernel) in _COMPILED:
            raise Unsupported(f"no profile with kernel {kernel}: TorchInductor fuses layers")
        return profile.profile(self.graph, self.options.device, run_steps)

    def runtime_info(self) -> dict[str, Any]:
        kernel, evidence = self._detect_kernel_and_evidence()
        return {
            "framework_version": torch.__version__,
            "layout": "NHWC" if kernel in _LAST else "NCHW",
            "precision": self._detect_precision(),
            "kernel": kernel,
            "kernel_evidence": evidence,
            "pools": {"intra-op": torch.get_num_threads()},
            "exchange": self._describe_exchange(),
            "loss_scale": self.scaler.get_scale() if self.scaler.is_enabled() else None,
            "gpu_copy_share": self.gpu_calls and self.gpu_calls.copy_share,
        }

    def _compile_if_inductor(self, graph: nn.Module) -> Any:
        if self.options.kernel not in _COMPILED:
            return graph
        return compiled.compile_training(graph, self.options.kernel == "cuda_graphs")

    def _apply_extension(self) -> None:
        """Do nothing. A subclass may replace the graph and the optimiser here."""

    def _to_plain_layout(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return `tensor` converted to PyTorch's plain layout.

        `tensor` is the parameter `name` or its gradient. A subclass overrides this method if it
        stores parameters in another layout.
        """
        return tensor

    def _to_packed_layout(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return `tensor` converted to the layout in which the graph stores the parameter `name`.

        `tensor` is in PyTorch's plain layout. A subclass overrides this method if it stores
        parameters in another layout.
        """
        return tensor

    def _describe_exchange(self) -> list[str]:
        """Return a line with DDP's backend, bucket sizes and hook, or that MPI uses the host."""
        if self.through_host:
            return ["MPI_Allreduce of one message, through pinned memory of the host"]
        if not self.parallel:
            return []
        logging_data = self.parallel._get_ddp_logging_data()
        sizes = logging_data.get("rebuilt_bucket_sizes") or logging_data.get(
            "bucket_sizes", "unknown"
        )
        hook = logging_data.get("comm_hook", "none")
        return [
            f"{logging_data['backend_name']}, buckets of {sizes} bytes, communication hook: {hook}"
        ]

    def _detect_precision(self) -> str:
        passed = str(self.passed or self.dtype).rpartition(".")[2]
        if passed != "float32":
            return passed
        return rounding.lowest_measured_precision(self._product, self._product_by_convolution)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _product(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        left, right = (torch.from_numpy(matrix).to(self.device) for matrix in (first, second))
        return _host(left @ right)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _product_by_convolution(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(rounding.fill_images_with_rows(first)).permute(0, 3, 1, 2)
        kernels = torch.from_numpy(second.T.copy())[:, :, None, None]
        images, kernels = images.to(self.device), kernels.to(self.device)
        return _host(torch.nn.functional.conv2d(images, kernels)[:, :, 0, 0])

    def _detect_kernel_and_evidence(self) -> tuple[str, list[str]]:
        """Return (name of the kernel, lines of evidence for it)."""
        kernel, evidence = self._library_kernel_and_evidence()
        if not compiled.is_compiled(self.gradient_function):
            return kernel, evidence
        lines = compiled.describe_compilation(self.gradient_function)
        return "cuda_graphs" if kernel == "cuda_graphs" else "inductor", [*lines, *evidence]

    def _gpu_kernel_and_evidence(self) -> tuple[str, list[str]]:
        """Return (name of the kernel, lines of evidence for it), from one more step without update.

        The attribute `gpu_calls` keeps what ran. Only a network with convolutions can show whether
        cuDNN ran.
        """
        cudnn = torch.backends.cudnn
        uses_cudnn = cudnn.enabled and cudnn.is_available()
        evidence = [
            f"torch.backends.cudnn.enabled is {uses_cudnn}",
            f"torch.backends.cudnn.benchmark is {cudnn.benchmark}",
            f"torch.backends.cudnn.deterministic is {cudnn.deterministic}",
            f"the version of cuDNN is {cudnn.version()}",
        ]
        self.gpu_calls = calls = self._record_gpu_calls()
        if calls is None or not self.convolutions:
            evidence = ["requested, not shown", *evidence, *(calls.describe() if calls else [])]
        else:
            uses_cudnn = bool(calls.cudnn_operations)
            evidence = [*calls.describe(), *evidence]
        if self.options.kernel == "cuda_graphs" and (calls is None or calls.graph_launches):
            return "cuda_graphs", evidence
        evidence.append(self._describe_weight_format())
        if uses_cudnn and self.batch is not None and self._is_channels_last():
            return "channels_last", [*evidence, _CAME_LAST]
        if uses_cudnn and _uses_default_algorithms():
            return "cudnn_deterministic", [*evidence, f"{_OLDER_INTERFACE} is 1"]
        return "cudnn" if uses_cudnn else "native", evidence

    def _record_gpu_calls(self) -> GpuCalls | None:
        """Record what the GPU runs in one more step without update. None without a batch.

        As in the timed steps, gradients are exchanged with the other ranks, and a new batch is
        copied to the GPU if each step had a new one.
        """
        if self.batch is None:
            return None
        host_batch = [tensor.cpu() for tensor in self.batch] if self.has_new_batches else None

        def step_without_update() -> None:
            batch = self.copier.copy(*host_batch) if host_batch else self.batch
            self._forward_backward_and_average_gradients(batch)

        without_exchange = self.training, self.joined
        self.training, self.joined = self.with_exchange or without_exchange
        try:
            return profile.record_gpu_calls(step_without_update)
        finally:
            self.training, self.joined = without_exchange

    def _describe_weight_format(self) -> str:
        """Return a line that counts the weights of convolutions that are channels last in memory.

        Only weights with several channels and several pixels can show this.
        """
        weights = [
            weight for weight in self.tensors.values() if weight.dim() == 4 and weight.shape[1] > 1
        ]
        formats = [
            weight.is_contiguous(memory_format=torch.channels_last)
            for weight in weights
            if weight[0, 0].numel() > 1
        ]
        return f"{sum(formats)} of {len(formats)} weights of convolutions are channels last"

    def _library_kernel_and_evidence(self) -> tuple[str, list[str]]:
        if self.device.type == "cuda":
            return self._gpu_kernel_and_evidence()
        enabled = torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()
        requested_kernel = (
            "channels_last" if self.options.kernel == "inductor" else self.options.kernel
        )
        flagged = requested_kernel if enabled else "native"
        evidence = [f"torch.backends.mkldnn.enabled is {enabled}"]
        ran = self._run_passes_and_count_library_calls() if self.batch is not None else None
        if ran is not None:
            evidence += [f"{library} ran {name} ×{n}" for (library, name), n in sorted(ran.items())]
        computed = [name for library, name in ran or () if library == "oneDNN"]
        # In other precisions oneDNN runs only if the processor has instructions for them.
        if ran is None or self.options.precision != "float32" or not self.convolutions:
            return flagged, ["requested, not shown", *evidence]
        if not set(computed) - {"reorder"}:
            return "native", evidence
        if self._is_channels_last():
            return "channels_last", [*evidence, _CAME_LAST]
        return "onednn", evidence

    def _run_passes_and_count_library_calls(self) -> Counter[tuple[str, str]]:
        """Run both passes and count the calls that oneDNN and MKL log, by (library, name)."""
        verbose = torch.backends.mkldnn.verbose(1), torch.backends.mkl.verbose(1)
        with observe.captured_stdout() as lines, verbose[0], verbose[1]:
            self._forward_backward_and_average_gradients(self.batch)
        ran: Counter[tuple[str, str]] = Counter()
        for line in lines:
            words = line.split(",")
            if words[0] == "onednn_verbose" and "exec" in words[:4]:
                ran["oneDNN", words[5]] += 1
            elif line.startswith("MKL_VERBOSE") and "NThr:" in line:
                ran["MKL", line.split()[1].partition("(")[0]] += 1
        return ran

    def _is_channels_last(self) -> bool:
        """Return whether the layers' outputs are channels last in memory.

        Only outputs with several channels and several pixels can show this. If there is no such
        output, return whether channels last was requested.
        """
        self.graph.eval()
        outputs: dict[str, Any] = {}
        with torch.no_grad():
            self._loss_and_scores(self.graph, self.batch, outputs)
        image_outputs = [
            x for x in outputs.values() if x.dim() == 4 and x.shape[1] > 1 < x[0, 0].numel()
        ]
        last = [x.is_contiguous(memory_format=torch.channels_last) for x in image_outputs]
        return any(last) if last else self.channels_last

    def _forward_backward_and_average_gradients(
        self, batch: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        if not self.graph.training:
            self.graph.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss, scores = self._loss_and_scores(self.training, batch)
        self.passed, self.gradient_function = scores.dtype, type(scores.grad_fn).__name__
        self.scaler.scale(loss).backward()
        if self.joined:
            self.joined.average([self.tensors[name].grad for name in self.learned])
        return loss.detach()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _test_loss_and_scores(
        self, batch: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[Any, torch.Tensor]:
        self.graph.eval()
        return self._loss_and_scores(self.graph, batch)

    def _loss_and_scores(
        self,
        graph: Any,
        batch: tuple[torch.Tensor, torch.Tensor],
        collected_outputs: dict[str, Any] | None = None,
    ) -> tuple[Any, torch.Tensor]:
        autocast_dtype = _AUTOCAST.get(self.options.precision)
        with torch.autocast(self.device.type, autocast_dtype, autocast_dtype is not None):
            loss, scores = graph(*batch, collected_outputs)
        return loss, scores

    def _set_rate_and_rescale_momentum(self, rate: float) -> None:
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


def _set_process_options(options: Options) -> None:
    """Set the options that PyTorch keeps per process, such as the number of threads.

    Raises Unavailable if `options.device` is "cuda" and PyTorch finds no NVIDIA device.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        raise Unavailable(f"PyTorch {torch.__version__}, built {built}, finds no NVIDIA device")
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    torch.backends.mkldnn.enabled = options.kernel in _ONEDNN
    torch.backends.cudnn.enabled = options.kernel in _CUDNN
    # Let cuDNN try its algorithms for each shape, as other frameworks do by default.
    torch.backends.cudnn.benchmark = options.kernel != "cudnn_deterministic"
    torch.backends.cudnn.deterministic = options.kernel == "cudnn_deterministic"
    _allow_tf32(options.precision == "tf32")


def _uses_default_algorithms() -> bool:
    """Return whether each convolution runs cuDNN's default algorithm.

    PyTorch takes them only with cuDNN's older interface. With the newer one, "deterministic" still
    allows Winograd's algorithms, whose float32 weight gradients can be wrong.
    """
    cudnn, is_older = torch.backends.cudnn, os.environ.get(_OLDER_INTERFACE) == "1"
    return is_older and cudnn.deterministic and not cudnn.benchmark


def _allow_tf32(allowed: bool) -> None:
    """Compute float32 products and convolutions in TF32 if `allowed`, else in float32.

    By default cuDNN computes float32 in TF32. PyTorch 2.9 has new names for both switches. The old
    names are used until PyTorch drops them. TorchInductor of PyTorch 2.9 and 2.10 reads the old
    names, which is an error after the new ones were set (PyTorch issue 166387).
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    if hasattr(matmul, "allow_tf32") and hasattr(cudnn, "allow_tf32"):
        cudnn.allow_tf32 = matmul.allow_tf32 = allowed
    else:
        cudnn.conv.fp32_precision = matmul.fp32_precision = "tf32" if allowed else "ieee"


def _host(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # NumPy has no bfloat16
        tensor = tensor.float()
    array: np.ndarray = tensor.numpy().copy()
    return array
