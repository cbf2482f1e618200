"""What a study may ask of a launch: one number of it, where it counts."""

from __future__ import annotations

import statistics as stdlib_statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from xfbench.analysis import communication, statistics
from xfbench.analysis.statistics import Launches
from xfbench.records.record import Record


@dataclass(frozen=True)
class Quantity:
    """One number of a launch, None where it has none; `steady`: only where steps kept their level.

    Only positive numbers count: they are compared by their ratio.
    """

    title: str
    unit: str
    of: Callable[[Record], float | None]
    steady: bool = False
    less_is_better: bool = False


def launches(quantity: Quantity, records: Iterable[Record]) -> Launches:
    """The quantity of each launch that counts, by its block: seed and launch, how often before."""
    found: dict[tuple[int, int], float] = {}
    for record in records:
        if record.status != "ok" or record.request is None:
            continue
        if quantity.steady and not statistics.is_steady(record):
            continue
        value = quantity.of(record)
        if value is None or value <= 0:
            continue
        block = 1000 * record.request.seed + record.request.launch
        found[block, sum(1 for other, _ in found if other == block)] = value
    return found


def _save(record: Record) -> float | None:
    taken = record.checkpoints
    return stdlib_statistics.median(taken.save_seconds) if taken and taken.save_seconds else None


def _load(record: Record) -> float | None:
    taken = record.checkpoints
    return stdlib_statistics.median(taken.load_seconds) if taken and taken.load_seconds else None


def _accuracy(record: Record) -> float | None:
    return record.learning[-1].test_accuracy if record.learning else None


def _memory(record: Record) -> float | None:
    return record.measurement.peak_rss_bytes / 1e6 if record.measurement else None


def _epoch_rate(record: Record) -> float | None:
    """Images of an epoch over the seconds of the median one, waiting for input among them."""
    request, learning = record.request, record.learning
    if not learning or request is None or request.data_set is None:
        return None
    images = request.data_set.train_images
    return images / stdlib_statistics.median(epoch.seconds for epoch in learning)


def _exchanged(record: Record) -> float | None:
    told = communication.step_shares([record])
    return told.bytes_per_epoch / 1e9 if told and told.bytes_per_epoch else None


def _computing(record: Record) -> float | None:
    told = communication.step_shares([record])
    return told.compute if told else None


QUANTITIES = {
    "images_per_second": Quantity(
        "throughput", "images/s", statistics.launch_throughput, steady=True
    ),
    "epoch_images_per_second": Quantity("throughput of an epoch", "images/s", _epoch_rate),
    "save_seconds": Quantity("saving a checkpoint", "s", _save, less_is_better=True),
    "load_seconds": Quantity("loading a checkpoint", "s", _load, less_is_better=True),
    "test_accuracy": Quantity("test accuracy", "of images", _accuracy),
    "peak_memory": Quantity("peak memory", "MB", _memory, less_is_better=True),
    "exchanged_gigabytes": Quantity("exchange of an epoch", "GB", _exchanged, less_is_better=True),
    "computing_share": Quantity("computing", "%", _computing),
}
