"""What a network is fed: the same batches, in the same order, for every framework.

Pixels are turned into the network's input here, once, so that no framework's own
reader or resizer comes between. Synthetic input is seeded noise, one batch for all steps.
"""

from __future__ import annotations

import io
import pkgutil
from dataclasses import dataclass
from typing import Iterator, Tuple

import numpy as np

from xfbench.worker.protocol import Unsupported
from xfbench.workloads import Workload

Arrays = Tuple[np.ndarray, np.ndarray]

# The digits have no split of their own that mixes their writers; this one is fixed for good.
_DIGITS_TRAIN, _DIGITS_TEST = 1437, 360


@dataclass(frozen=True)
class DataSet:
    """Images float32 (N, C, H, W) as the network gets them, labels int64 (N,); test may be None."""

    train: Arrays
    test: Arrays | None

    def first(self, batch_size: int, seed: int) -> Arrays:
        """The first batch that is trained on."""
        return next(self.epoch(batch_size, seed)) if self.test else self.train

    def epoch(self, batch_size: int, seed: int) -> Iterator[Arrays]:
        """The training part once, in an order fixed by `seed`, in whole batches."""
        images, labels = self.train
        order = np.random.RandomState(seed).permutation(len(labels))
        for start in range(0, len(labels) - batch_size + 1, batch_size):
            chosen = order[start : start + batch_size]
            yield images[chosen], labels[chosen]


def misfit(name: str, workload: Workload) -> str | None:
    """Why the named data set cannot be what the network reads; None where it can."""
    network = workload.network
    if name == "digits" and (network.input_shape[0] != 1 or network.classes < 10):
        return (
            f"the digits are one-channel images of 10 classes; {workload.name} reads "
            f"{network.input_shape[0]} channels and has {network.classes} classes"
        )
    return None


def epoch_images(name: str, workload: Workload) -> int | None:
    """How many images an epoch of the named data set has; None where nobody says.

    Synthetic input stands for the data set that the network was published with.
    """
    return {"synthetic": workload.epoch_images, "digits": _DIGITS_TRAIN}.get(name)


def data_set(name: str, workload: Workload, batch_size: int, seed: int) -> DataSet:
    """The named data set in the shape of the workload's input.

    Raises Unsupported where the data do not fit the network, or are too few for one batch.
    """
    reason = misfit(name, workload)
    if reason:
        raise Unsupported(reason)
    if name == "synthetic":
        return DataSet(synthetic_batch(workload, batch_size, seed), None)
    if name == "digits":
        found = _digits(workload)
        if len(found.train[1]) < batch_size:
            raise Unsupported(
                f"a batch of {batch_size} is more than the {len(found.train[1])} images of {name}"
            )
        return found
    raise Unsupported(f"unknown data set {name!r}")


def synthetic_batch(workload: Workload, batch_size: int, seed: int) -> Arrays:
    """One batch of uniform noise pixels and labels, from NumPy's frozen random stream."""
    network = workload.network
    random = np.random.RandomState(seed)
    pixels = random.randint(0, 256, (batch_size, *network.input_shape))
    labels = random.randint(0, network.classes, batch_size)
    return _network_input(pixels.astype(np.float32), workload), labels.astype(np.int64)


def _digits(workload: Workload) -> DataSet:
    network = workload.network
    stored = pkgutil.get_data("xfbench.workloads", "digits.npz")
    if stored is None:
        raise FileNotFoundError("digits.npz is not part of this worker")
    with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
        small = arrays["images"].astype(np.float32) * (255.0 / 16.0)
        labels = arrays["labels"].astype(np.int64)
    rows = _bilinear(small.shape[1], network.input_shape[1])
    columns = _bilinear(small.shape[2], network.input_shape[2])
    # einsum without BLAS: the same bytes in every interpreter, whatever its NumPy links to.
    enlarged = np.einsum("ij,njk,lk->nil", rows, small, columns, optimize=False)
    images = _network_input(enlarged[:, np.newaxis].astype(np.float32), workload)
    order = np.random.RandomState(0).permutation(len(labels))
    train, test = order[:_DIGITS_TRAIN], order[_DIGITS_TRAIN:]
    return DataSet((images[train], labels[train]), (images[test], labels[test]))


def _bilinear(source: int, target: int) -> np.ndarray:
    """The (target, source) matrix of linear interpolation between pixel centres, edges repeated."""
    centre = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    low = np.minimum(centre.astype(int), source - 2)
    weights = np.zeros((target, source), np.float64)
    weights[np.arange(target), low] = 1 - (centre - low)
    weights[np.arange(target), low + 1] = centre - low
    return weights


def _network_input(pixels: np.ndarray, workload: Workload) -> np.ndarray:
    mean = np.asarray(workload.pixels.mean, np.float32).reshape(1, -1, 1, 1)
    return (pixels - mean) * np.float32(workload.pixels.scale)
