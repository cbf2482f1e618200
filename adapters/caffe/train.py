"""The trainer of Caffe: Caffe's own solver, called through pycaffe, in float32.

For each running average of a batch norm, Caffe stores a decaying sum and a divisor. During training
the divisor approaches 1 / (1 - momentum). The trainer sets the divisor to this limit, so that sum /
divisor is the average that the workload defines.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Iterator, Tuple

import caffe
import numpy as np

from xfbench.adapters.caffe import profile, prototxt, update
from xfbench.worker import observe
from xfbench.worker.mpi import AllReduce
from xfbench.worker.protocol import Group, Options, Profile, Unsupported
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True

Batch = Tuple[np.ndarray, np.ndarray]

# Prefix of snapshot files. Caffe appends "_iter_<updates>" and ".caffemodel" or ".solverstate". If
# a folder had this name, Caffe would write into it.
_SNAPSHOT = "snapshot"
_BLOBS = {"weight": 0, "bias": 1, "gamma": 0, "beta": 1, "mean": 0, "variance": 1}


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> CaffeTrainer:
    """Return a trainer for `network`.

    The kernel has the name of the BLAS library that Caffe calls: "openblas", "mkl" or "reference".
    Raises Unsupported if the precision is not float32.
    """
    if options.precision != "float32":
        raise Unsupported(f"Caffe's Python interface has float32 only, not {options.precision}")
    caffe.set_mode_cpu()
    caffe.set_random_seed(options.seed)
    joined = AllReduce(group) if group.strategy == "mpi" else None
    return CaffeTrainer(network, solver, options, joined)


class CaffeTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    def __init__(
        self,
        network: xl.Network,
        solver: Solver,
        options: Options,
        joined: AllReduce | None,
    ) -> None:
        self.network, self.joined = network, joined
        with TemporaryDirectory(prefix="xfbench-caffe-") as folder:
            net_path, solver_path = Path(folder, "net.prototxt"), Path(folder, "solver.prototxt")
            net_path.write_text(prototxt.net_parameter(network, 1, options.dropout))
            solver_path.write_text(
                f"{prototxt.solver_parameter(solver, str(net_path))}"
                f'snapshot_prefix: "{_SNAPSHOT}"\n'
            )
            self.solver = caffe.SGDSolver(str(solver_path))
            self.test_net = caffe.Net(str(net_path), caffe.TEST)
        self.net = self.solver.net
        self.test_net.share_with(self.net)
        self.names = prototxt.blob_name_by_layer(network, options.dropout)
        self.fed: dict[Any, Batch] = {}
        self.blobs: dict[str, Any] = {}
        self.divisors: dict[str, Any] = {}
        self.full_divisor: dict[str, float] = {}
        momenta = {
            layer.name: layer.momentum
            for layer in network.layers
            if isinstance(layer, xl.BatchNorm)
        }
        for name in network.parameters:
            layer_name, _, kind = name.rpartition("/")
            holder = prototxt.scale_name(layer_name) if kind in {"gamma", "beta"} else layer_name
            self.blobs[name] = self.net.params[holder][_BLOBS[kind]]
            if kind in {"mean", "variance"}:
                self.divisors[name] = self.net.params[layer_name][2]
                self.full_divisor[name] = 1 / (1 - momenta[layer_name])
        self.learned = [name for name, p in network.parameters.items() if p.learned]
        self.scale = None
        if prototxt.uses_lars_or_warmup(solver):
            learned = {name: (network.parameters[name], self.blobs[name]) for name in self.learned}
            self.scale = update.Scale(solver, learned)
        if joined or self.scale:  # called between the backward pass and the update
            self.solver.add_callback(lambda: None, self._average_gradients_add_decay_and_scale)

    def load(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return np.ascontiguousarray(images, np.float32), labels.astype(np.float32)

    def step(self, batch: Batch) -> None:
        self._feed(self.net, batch)
        self.solver.step(1)

    def wait_for_loss(self) -> float:
        return self._weighted_loss(self.net)

    def test_loss(self, batch: Batch) -> float:
        self._run_test_net(batch)
        return self._weighted_loss(self.test_net)

    def test_scores(self, batch: Batch) -> np.ndarray:
        self._run_test_net(batch)
        return _host(self.test_net.blobs[self.names[self.network.scores_layer]].data)

    def layer_outputs(self, batch: Batch) -> dict[str, np.ndarray]:
        self._feed(self.net, batch)
        self.net.forward()
        last = {blob: name for name, blob in self.names.items()}  # other outputs are overwritten
        return {
            name: _host(self.net.blobs[blob].data)
            for blob, name in last.items()
            if name not in {head.name for head in self.network.losses}
        }

    def gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        self._feed(self.net, batch)
        self.net.clear_param_diffs()
        self.net.forward()
        self.net.backward()
        self._average_gradients()
        return {name: _host(self.blobs[name].diff) for name in self.learned}

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            name: _host(
                blob.data / self.divisors[name].data if name in self.divisors else blob.data
            )
            for name, blob in self.blobs.items()
        }

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        for name, blob in self.blobs.items():
            if name in self.divisors:
                divisor = self.divisors[name].data
                divisor[...] = self.full_divisor[name]
                blob.data[...] = parameters[name] * divisor
            else:
                blob.data[...] = parameters[name]

    def disable_sync(self) -> None:
        self.joined = None

    def save(self, folder: Path) -> None:
        with _working_directory(folder):
            self.solver.snapshot()

    def restore(self, folder: Path) -> None:
        [state] = folder.glob("*.solverstate")
        with _working_directory(folder):  # the state file names its weights by a relative path
            self.solver.restore(state.name)

    def profile(
        self, batch: Batch, run_steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        layer_names = {layer.name: layer.name for layer in self.network.layers}
        scales = {prototxt.scale_name(name): name for name in layer_names}
        return profile.profile(self.net, {**scales, **layer_names}, run_steps(), clock)

    def runtime_info(self) -> dict[str, Any]:
        library = next(iter(observe.mapped_library_short_paths("libcaffe.so")), "").rpartition("/")[
            2
        ]
        blas = observe.symbol_provider("cblas_sgemm", library)
        library_kernels = {"openblas": "openblas", "libmkl": "mkl"}
        return {
            "framework_version": caffe.__version__,
            "layout": "NCHW",
            "precision": self.net.blobs["data"].data.dtype.name,
            "kernel": next(
                (name for part, name in library_kernels.items() if part in blas), "reference"
            ),
            "kernel_evidence": [f"BLAS that libcaffe calls for cblas_sgemm: {blas or 'not found'}"],
            "pools": observe.thread_pool_sizes("openblas", "libmkl"),
        }

    def _average_gradients_add_decay_and_scale(self) -> None:
        self._average_gradients()
        if self.scale:
            self.scale(self.solver.iter)

    def _average_gradients(self) -> None:
        """Replace each gradient by its mean over the ranks. Without MPI, do nothing."""
        if self.joined:
            self.joined.average_in_place([self.blobs[name].diff for name in self.learned])

    def _run_test_net(self, batch: Batch) -> None:
        self._feed(self.test_net, batch)
        self.test_net.forward()

    def _feed(self, net: Any, batch: Batch) -> None:
        """Copy `batch` into the input blobs of `net`, unless they already hold this batch."""
        if self.fed.get(net) is batch:
            return
        images, labels = net.blobs["data"], net.blobs["label"]
        if images.data.shape != batch[0].shape:
            images.reshape(*batch[0].shape)
            labels.reshape(*batch[1].shape)
            net.reshape()
        images.data[...], labels.data[...] = batch
        self.fed[net] = batch

    def _weighted_loss(self, net: Any) -> float:
        return sum(head.weight * float(net.blobs[head.name].data) for head in self.network.losses)


@contextlib.contextmanager
def _working_directory(folder: Path) -> Iterator[None]:
    """Change the working directory to `folder` for the `with` block.

    Caffe fixes the prefix of snapshot files when a solver is created. The trainer's prefix is
    relative, so the working directory determines the folder of a snapshot.
    """
    before = Path.cwd()
    os.chdir(str(folder))
    try:
        yield
    finally:
        os.chdir(str(before))


def _host(array: Any) -> np.ndarray:
    return np.array(array)
