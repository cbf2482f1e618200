"""The workloads: networks with their solvers and input, stored as data.

A module in this folder, or in a folder listed in `XFBENCH_WORKLOADS`, defines its workloads in
`WORKLOADS`. Nothing here imports a framework. The worker carries this package into every
interpreter, so it uses only the standard library and NumPy and runs on Python 3.8 and later.
"""

from __future__ import annotations

if __name__ == "workloads":
    raise ImportError("import this package as xfbench.workloads")

import importlib
import importlib.util
import os
import pkgutil
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from xfbench.workloads.layers import Network, layer_from_json
from xfbench.workloads.solver import Solver

# Training images of the data sets that networks were published with: ILSVRC 2012 (Russakovsky et
# al. 2015), CIFAR-10 (Krizhevsky 2009), MNIST (LeCun et al. 1998).
IMAGENET, CIFAR10, MNIST = 1_281_167, 50_000, 60_000


@dataclass(frozen=True)
class Pixels:
    """The conversion of stored pixels (0 to 255) to network input: (pixel - mean) * scale.

    `mean` has one value per channel, in the network's channel order. `order` is that order:
    "gray" or "BGR", the order of Caffe's own pipelines. Training crops larger stored images at
    random. With `mirror`, it mirrors every other image.
    """

    order: str
    mean: tuple[float, ...]
    scale: float = 1.0
    mirror: bool = False


@dataclass(frozen=True)
class Workload:
    """A network, its solver and its input.

    `batch_size` is the published batch size in images per update. `data` is the default data
    set. `source` cites the definition. `epoch_images` is the number of images in an epoch of the
    data set that the network was published with, or None if there was no such data set.
    """

    network: Network
    solver: Solver
    pixels: Pixels
    batch_size: int
    data: str
    source: str
    epoch_images: int | None = None

    @property
    def name(self) -> str:
        return self.network.name

    def to_json(self) -> dict[str, Any]:
        """Return the workload as JSON values. `workload_from_json` reads them."""
        return {
            "network": self.network.to_json(),
            "solver": _solver_as_json(self.solver),
            "pixels": _pixels_as_json(self.pixels),
            "batch_size": self.batch_size,
            "data": self.data,
            "source": self.source,
            "epoch_images": self.epoch_images,
        }


def _solver_as_json(solver: Solver) -> dict[str, Any]:
    """Return the solver as JSON, without warm-up if it is off: old digests stay valid."""
    document = asdict(solver)
    return document if solver.warmup else {k: v for k, v in document.items() if k != "warmup"}


def _pixels_as_json(pixels: Pixels) -> dict[str, Any]:
    """Return the pixels as JSON, without `mirror` if it is off: old digests stay valid."""
    document = {**asdict(pixels), "mean": list(pixels.mean)}
    return document if pixels.mirror else {k: v for k, v in document.items() if k != "mirror"}


def workload_from_json(document: dict[str, Any]) -> Workload:
    """Return the workload that `Workload.to_json` wrote. Raises KeyError or TypeError otherwise."""
    network = document["network"]
    pixels = document["pixels"]
    return Workload(
        network=Network(
            name=network["name"],
            input_shape=tuple(network["input_shape"]),
            classes=network["classes"],
            layers=tuple(layer_from_json(layer) for layer in network["layers"]),
        ),
        solver=Solver(**document["solver"]),
        pixels=Pixels(**{**pixels, "mean": tuple(pixels["mean"])}),
        batch_size=document["batch_size"],
        data=document["data"],
        source=document["source"],
        epoch_images=document["epoch_images"],
    )


class WorkloadError(Exception):
    """A workload module of the user is invalid. The message gives the file and the cause."""


def workloads() -> dict[str, Workload]:
    """Return every workload by name: built-in, then from each folder in `XFBENCH_WORKLOADS`.

    The order is that of the modules and of their `WORKLOADS`. Raises WorkloadError if a user's
    module cannot be read, or if it defines a workload name that already exists.
    """
    by_name: dict[str, Workload] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for workload in getattr(module, "WORKLOADS", ()):
            by_name[workload.name] = workload
    for root in filter(None, os.environ.get("XFBENCH_WORKLOADS", "").split(":")):
        if not Path(root).is_dir():
            raise WorkloadError(f"XFBENCH_WORKLOADS: {root}: no such folder")
        for file in sorted(Path(root).glob("*.py")):
            for workload in _load_file(file, file.stat().st_mtime_ns):
                if workload.name in by_name:
                    raise WorkloadError(f"{file}: workload {workload.name} already exists")
                by_name[workload.name] = workload
    return by_name


@lru_cache(maxsize=None)
def _load_file(file: Path, _mtime_ns: int) -> tuple[Workload, ...]:
    """Return the workloads of a user's module. A changed modification time misses the cache."""
    spec = importlib.util.spec_from_file_location(f"{__name__}.{file.stem}", file)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{file}: cannot be read")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        file_workloads = tuple(getattr(module, "WORKLOADS", ()))
        for workload in file_workloads:
            if not isinstance(workload, Workload):
                raise TypeError("WORKLOADS contains an object that is not a Workload")
            workload.network.shapes  # noqa: B018  raises if layers do not fit together
    except Exception as error:
        raise WorkloadError(f"{file}: {type(error).__name__}: {error}") from error
    return file_workloads
