"""Communication of ranks: the bytes exchanged, and the share of a step that the exchange takes.

A step takes as long as the slowest rank computes, plus the exposed part of the exchange. Computing
time is measured in extra steps, which each rank does alone and without exchange.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.model.record import Communication, Record
from xfbench.model.request import Request
from xfbench.worker.input import known_images_per_epoch
from xfbench.workloads import workloads

# The exchange is unknown if computing and waiting take longer than a step by more than this share.
_TOLERANCE = 0.02


@dataclass(frozen=True)
class Shares:
    """Shares of a step, and bytes exchanged, of a cell with several ranks.

    The shares are medians over launches, and add up to about 1:

    - `compute`: computing time, as the mean over the ranks.
    - `waiting`: how much longer the slowest rank computes than the mean.
    - `exposed`: the part of the exchange that does not overlap with computing.

    Bytes:

    - `bytes_per_step`: the minimum that the strategy must send in a step, summed over all ranks.
    - `counted_bytes`: bytes per step that network interfaces counted, as the median over launches.
      It is None if they counted nothing, for example because ranks use shared memory.
    - `epoch_steps`: number of steps in an epoch; None if the number of images is unknown.
    - `bytes_per_epoch`: `bytes_per_step` · `epoch_steps`; None without `epoch_steps`.
    - `counted_bytes_per_epoch`: `counted_bytes` · `epoch_steps`; None without one of them.
    """

    compute: float
    waiting: float
    exposed: float
    bytes_per_step: int
    counted_bytes: float | None
    epoch_steps: int | None
    bytes_per_epoch: int | None
    counted_bytes_per_epoch: float | None

    @property
    def can_tell_exchange(self) -> bool:
        """Whether the step was long enough for computing and waiting, as measured without exchange.

        Otherwise something disturbed one of the measurements, and the exchange is unknown.
        """
        return self.exposed >= -_TOLERANCE


def step_shares(
    records: Sequence[Record], synthetic_epoch_images: int | None = None
) -> Shares | None:
    """Return the shares of a cell's ok launches, or None if no launch measured communication.

    `synthetic_epoch_images`: see `epoch_steps`.
    """
    launches = [
        (record.communication, statistics.median(record.measurement.step_seconds))
        for record in records
        if record.status == "ok"
        and record.communication
        and record.measurement
        and record.measurement.step_seconds
        and record.communication.compute_seconds
        and record.communication.waiting_seconds
        and record.communication.exposed_seconds
    ]
    request = records[-1].request
    if not launches:
        return None
    last = launches[-1][0]
    nodes = request.nodes if request else 1
    counted_bytes = (
        statistics.median(
            _loopback_or_network_bytes_per_step(communication, nodes)
            for communication, _ in launches
        )
        or None
    )
    steps = epoch_steps(request, synthetic_epoch_images)
    return Shares(
        compute=statistics.median(statistics.median(c.compute_seconds) / s for c, s in launches),
        waiting=statistics.median(statistics.median(c.waiting_seconds) / s for c, s in launches),
        exposed=statistics.median(statistics.median(c.exposed_seconds) / s for c, s in launches),
        bytes_per_step=last.bytes_per_step,
        counted_bytes=counted_bytes,
        epoch_steps=steps,
        bytes_per_epoch=steps and steps * last.bytes_per_step,
        counted_bytes_per_epoch=counted_bytes and steps and steps * counted_bytes,
    )


def epoch_steps(request: Request | None, synthetic_epoch_images: int | None = None) -> int | None:
    """Return the number of updates in an epoch, or None if the number of images is unknown.

    Images that do not fill a batch are not counted.

    - `synthetic_epoch_images`: number of images in an epoch of synthetic input. None: as many as in
      the data set that the network was published with.
    """
    images = images_per_epoch(request)
    if request and request.data == "synthetic" and synthetic_epoch_images:
        images = synthetic_epoch_images
    return images // request.global_batch_size if request and images is not None else None


def images_per_epoch(request: Request | None) -> int | None:
    """Return the images in an epoch of the request's data set, or None if they are unknown.

    Synthetic data have as many as the data set with which the network was published.
    """
    workload = workloads().get(request.workload) if request else None
    if request is None or workload is None:
        return None
    data_set = request.data_set
    return data_set.train_images if data_set else known_images_per_epoch(request.data, workload)


def _loopback_or_network_bytes_per_step(communication: Communication, nodes: int) -> float:
    """Return the bytes per step that network interfaces counted.

    On one node, only the loopback interface is included. On several nodes, all interfaces except
    the loopback interface are included.
    """
    if nodes == 1:
        return communication.interface_bytes.get("lo", 0.0)
    return sum(count for name, count in communication.interface_bytes.items() if name != "lo")
