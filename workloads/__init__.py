"""The workloads: networks with their solvers and inputs, described as data.

A module in this folder, or in a folder listed in `XFBENCH_WORKLOADS`, defines its workloads in
`WORKLOADS`. Nothing here imports a framework. Every framework's interpreter imports this package.
Therefore it uses only the standard library and NumPy, and it runs on Python 3.8 and later.
"""

from __future__ import annotations

if __name__ == "workloads":
    raise ImportError("import this package as xfbench.workloads")

import importlib
import importlib.util
import os
import pkgutil
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from xfbench.workloads.layers import Network, layer_from_json
from xfbench.workloads.solver import Solver

# Numbers of training images in the data sets with which networks were published: ILSVRC 2012
# (Russakovsky et al. 2015), CIFAR-10 (Krizhevsky 2009), MNIST (LeCun et al. 1998).
IMAGENET, CIFAR10, MNIST = 1_281_167, 50_000, 60_000


@dataclass(frozen=True)
class Pixels:
    """The conversion of stored pixels (0 to 255) to network input: (pixel - mean) * scale.

    - `order`: the network's channel order: "gray" or "BGR", the order of Caffe's own pipelines.
    - `mean`: one value per channel, in this order.
    - `mirror`: training mirrors each image with probability 1/2.

    If stored images are larger than the network's input, training crops them at random positions.
    """

    order: str
    mean: tuple[float, ...]
    scale: float = 1.0
    mirror: bool = False


@dataclass(frozen=True)
class Workload:
    """A network, its solver and its input.

    - `batch_size`: the published batch size, in images per update.
    - `data`: the name of the default data set.
    - `source`: a citation of the published definition.
    - `epoch_images`: the number of training images in the published data set. None if the network
      was published without a data set.
    - `target_loss`: the test loss until which the time of training is compared. None: there is no
      default, so a study must name one. It does not change what is trained. Therefore it is neither
      in the JSON nor in a digest.
    """

    network: Network
    solver: Solver
    pixels: Pixels
    batch_size: int
    data: str
    source: str
    epoch_images: int | None = None
    target_loss: float | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return self.network.name

    def to_json(self) -> dict[str, Any]:
        """Return the workload as a JSON object, which `workload_from_json` reads."""
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
    """Return the fields of `solver` as a JSON object.

    If `warmup` is 0, it is left out, so that digests of older versions stay valid.
    """
    document = asdict(solver)
    return document if solver.warmup else {k: v for k, v in document.items() if k != "warmup"}


def _pixels_as_json(pixels: Pixels) -> dict[str, Any]:
    """Return the fields of `pixels` as a JSON object.

    If `mirror` is false, it is left out, so that digests of older versions stay valid.
    """
    document = {**asdict(pixels), "mean": list(pixels.mean)}
    return document if pixels.mirror else {k: v for k, v in document.items() if k != "mirror"}


def workload_from_json(document: dict[str, Any]) -> Workload:
    """Return the workload described by `document`, a JSON object from `Workload.to_json`.

    Raises KeyError or TypeError if a field is missing or unknown.
    """
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
    """A folder or module of the user's workloads is invalid.

    The message names the folder or module, and the cause.
    """


def workloads() -> dict[str, Workload]:
    """Return every workload by name: the built-in ones, then those of the user.

    The environment variable `XFBENCH_WORKLOADS` lists the user's folders, separated by colons.
    Modules are sorted by name, and the workloads of a module are in the order of its `WORKLOADS`.

    Raises WorkloadError if a folder does not exist or a user's module is invalid. Also raises it if
    a user's workload has the name of another workload.
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
    """Import a user's module and return its workloads.

    If the modification time changes, the cache does not apply and the module is imported again.
    """
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
