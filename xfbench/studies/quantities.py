"""The quantities of a launch that studies can analyze."""

from __future__ import annotations

import statistics as stdlib_statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xfbench import statistics
from xfbench.analysis import communication
from xfbench.analysis.costs import gpu_utilization
from xfbench.base import errors
from xfbench.base.wording import pluralize
from xfbench.host import media
from xfbench.model.record import Record
from xfbench.planning.study_form import Analysis
from xfbench.statistics import Launches


@dataclass(frozen=True)
class Quantity:
    """A number that describes a launch, such as its throughput.

    - `title`: the name of the quantity in sentences.
    - `extract`: reads the number from a record; returns None if the record does not have it. A
      measurement that all launches of a session share returns a number for each of its rounds.
    - `needs_steps`: whether only launches with valid step times count.
    - `lower_is_better`: whether a smaller number is better.

    Only positive numbers count, because quantities are compared by ratio.
    """

    title: str
    unit: str
    extract: Callable[[Record], float | Sequence[float] | None]
    needs_steps: bool = False
    lower_is_better: bool = False


def counted_values_by_block(quantity: Quantity, records: Iterable[Record]) -> Launches:
    """Return the quantity of each launch that counts, by block.

    A launch counts if it is ok and its value is positive. If `quantity.needs_steps` is true, the
    launch must also have valid step times. If all launches of a session share a measurement, its
    rounds count in place of the launches.
    """
    values: dict[statistics.Block, float] = {}
    for record in records:
        if record.status != "ok" or record.request is None:
            continue
        if quantity.needs_steps and not statistics.has_valid_steps(record):
            continue
        value = quantity.extract(record)
        if isinstance(value, Sequence):
            session = statistics.session_of(record)
            values |= {
                statistics.Block(session, 0, number, 0): of_round
                for number, of_round in enumerate(value, 1)
            }
        elif value is not None and value > 0:
            values[statistics.next_block(record, values)] = value
    return values


def score_launches(launches: Launches, quantity: Quantity) -> Launches:
    """Return a score for each launch, by block.

    A higher score is better, even if a lower value of the quantity is better.
    """
    return (
        {block: 1 / value for block, value in launches.items()}
        if quantity.lower_is_better
        else launches
    )


def find_quantity(analysis: Analysis) -> Quantity:
    """Return the quantity that `analysis.of` names. Raises UsageError if the name is unknown.

    The time to solution is that of `analysis.epochs` epochs. Gigabytes of an epoch of synthetic
    input are those of `analysis.epoch_images` images.
    """
    if analysis.of not in QUANTITIES:
        raise errors.unknown_name_error("quantity", analysis.of, QUANTITIES)
    quantity, epochs = QUANTITIES[analysis.of], analysis.epochs
    if analysis.of == "exchanged_gigabytes" and analysis.epoch_images:
        extract = partial(
            minimum_sent_gigabytes_per_epoch, synthetic_epoch_images=analysis.epoch_images
        )
        return replace(quantity, extract=extract)
    if analysis.of != TIME_TO_SOLUTION:
        return quantity

    def seconds_of_epochs(record: Record) -> float | None:
        seconds = _epoch_seconds(record)
        return seconds and epochs * seconds

    title = f"{quantity.title} ({pluralize(epochs, 'epoch')})"
    return replace(quantity, title=title, extract=seconds_of_epochs)


def describe_time_basis(record: Record) -> str:
    """Return in words whether the time to solution was measured, or computed from throughput."""
    if record.learning:
        return f"measured: {pluralize(len(record.learning), 'whole epoch')}"
    images = communication.images_per_epoch(record.request)
    return f"computed from images/s: {images:,} images per epoch" if images else ""


def _epoch_seconds(record: Record) -> float | None:
    """Return the seconds of training for an epoch; None if they are unknown.

    They are the mean of the epochs that the launch trained. If it trained none, they are the number
    of images in an epoch of its data set, divided by its throughput.
    """
    if record.learning:
        return stdlib_statistics.fmean(epoch.seconds for epoch in record.learning)
    images = communication.images_per_epoch(record.request)
    if images is None or not statistics.has_valid_steps(record):
        return None
    return images / statistics.launch_throughput(record)


def _median_checkpoint_save_seconds(record: Record) -> float | None:
    checkpoints = record.checkpoints
    return (
        stdlib_statistics.median(checkpoints.save_seconds)
        if checkpoints and checkpoints.save_seconds
        else None
    )


def _median_checkpoint_load_seconds(record: Record) -> float | None:
    checkpoints = record.checkpoints
    return (
        stdlib_statistics.median(checkpoints.load_seconds)
        if checkpoints and checkpoints.load_seconds
        else None
    )


def _test_accuracy(record: Record) -> float | None:
    return record.learning[-1].test_accuracy if record.learning else None


def _peak_memory_mb(record: Record) -> float | None:
    return record.measurement.peak_rss_bytes / 1e6 if record.measurement else None


def _epoch_images_per_second(record: Record) -> float | None:
    """Return the images per epoch, divided by the median duration of an epoch in seconds.

    The duration of an epoch includes waiting for input.
    """
    request, learning = record.request, record.learning
    if not learning or request is None or request.data_set is None:
        return None
    images = request.data_set.train_images
    return images / stdlib_statistics.median(epoch.seconds for epoch in learning)


def minimum_sent_gigabytes_per_epoch(
    record: Record, synthetic_epoch_images: int | None = None
) -> float | None:
    """Return the gigabytes that all ranks must send in an epoch at least. None if unknown.

    `synthetic_epoch_images`: number of images in an epoch of synthetic input. None: as many as in
    the data set that the network was published with.
    """
    shares = communication.step_shares([record], synthetic_epoch_images)
    return shares.bytes_per_epoch / 1e9 if shares and shares.bytes_per_epoch else None


def _gpu_copy_share(record: Record) -> float | None:
    return record.observed.gpu_copy_share if record.observed else None


def _sequential_read_gigabytes_per_second(record: Record) -> Sequence[float] | None:
    """Return the speed of each round of sequential plain reads of the data set.

    If some bytes are known to have come from memory, the speed is not that of the medium, and the
    result is None. All bytes of a medium in memory come from there.
    """
    storage = record.storage
    for reads in storage.reads if storage else ():
        if reads.pattern == "sequential" and storage:
            is_cold = media.compute_speed(reads).is_cold
            if is_cold is False and storage.medium.device != "memory":
                return None
            return [each.bytes / each.seconds / 1e9 for each in reads.rounds]
    return None


def _computing_share(record: Record) -> float | None:
    shares = communication.step_shares([record])
    return shares.compute if shares else None


TIME_TO_SOLUTION = "time_to_solution"
QUANTITIES = {
    "images_per_second": Quantity(
        "throughput", "images/s", statistics.launch_throughput, needs_steps=True
    ),
    "epoch_images_per_second": Quantity(
        "throughput of an epoch", "images/s", _epoch_images_per_second
    ),
    TIME_TO_SOLUTION: Quantity("time to solution", "s", _epoch_seconds, lower_is_better=True),
    "save_seconds": Quantity(
        "saving a checkpoint", "s", _median_checkpoint_save_seconds, lower_is_better=True
    ),
    "load_seconds": Quantity(
        "loading a checkpoint", "s", _median_checkpoint_load_seconds, lower_is_better=True
    ),
    "test_accuracy": Quantity("test accuracy", "of images", _test_accuracy),
    "peak_memory": Quantity("peak memory", "MB", _peak_memory_mb, lower_is_better=True),
    "exchanged_gigabytes": Quantity(
        "exchange of an epoch", "GB", minimum_sent_gigabytes_per_epoch, lower_is_better=True
    ),
    "computing_share": Quantity("computing", "%", _computing_share),
    "gpu_utilization": Quantity("utilization of the GPU", "%", gpu_utilization),
    "gpu_copy_share": Quantity("copying on the GPU", "%", _gpu_copy_share, lower_is_better=True),
    "read_gigabytes_per_second": Quantity(
        "sequential reading of the data", "GB/s", _sequential_read_gigabytes_per_second
    ),
}
