"""Communication of ranks: bytes exchanged, and shares of a step from each rank's measurements.

A step takes as long as the slowest rank computes, plus the exposed part of the exchange. The
computing time of each rank is measured by steps in which it takes part in no exchange.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.model.record import Communication, Record
from xfbench.model.request import Request
from xfbench.worker.input import known_images_per_epoch
from xfbench.workloads import workloads


@dataclass(frozen=True)
class Shares:
    """Shares of a step of several ranks, as medians over a cell's launches.

    The three shares add up to one except for noise. `bytes_per_step` is what the strategy has to
    send. `counted_bytes` is what network interfaces counted, or None if ranks share memory. The
    figures per epoch are for `epoch_steps`, and None if the number of images is unknown.
    """

    compute: float
    waiting: float
    exposed: float
    bytes_per_step: int
    counted_bytes: float | None
    epoch_steps: int | None
    bytes_per_epoch: int | None
    counted_bytes_per_epoch: float | None


def step_shares(records: Sequence[Record]) -> Shares | None:
    """Return the step shares of a cell's ok launches, or None if they measured no communication."""
    launches = [
        (record.communication, statistics.median(record.measurement.step_seconds))
        for record in records
        if record.status == "ok" and record.communication and record.measurement
    ]
    request = records[-1].request
    launches = [
        (communication, step) for communication, step in launches if communication.compute_seconds
    ]
    if not launches:
        return None
    last = launches[-1][0]
    nodes = request.nodes if request else 1
    counted_bytes = (
        statistics.median(
            _sum_interface_bytes(communication, nodes) for communication, _ in launches
        )
        or None
    )
    steps = epoch_steps(request)
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


def epoch_steps(request: Request | None) -> int | None:
    """Return the updates in an epoch (images in whole batches), or None if it is unknown."""
    workload = workloads().get(request.workload) if request else None
    if request is None or workload is None:
        return None
    data_set = request.data_set
    images = data_set.train_images if data_set else known_images_per_epoch(request.data, workload)
    return images and images // request.global_batch_size


def _sum_interface_bytes(communication: Communication, nodes: int) -> float:
    """Return the bytes exchanged between nodes, or over the loopback interface of one node."""
    if nodes == 1:
        return communication.interface_bytes.get("lo", 0.0)
    return sum(count for name, count in communication.interface_bytes.items() if name != "lo")
