"""What ranks exchange, and what it costs: shares of a step from what each rank told.

A step of all ranks takes as long as the slowest rank computes, and what of the exchange that
does not hide. What each computes is measured by steps in which it joins nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.records.record import Communication, Record
from xfbench.request import Request
from xfbench.worker.input import images_per_epoch
from xfbench.workloads import workloads


@dataclass(frozen=True)
class Shares:
    """Of a step of several ranks: medians over a cell's launches, each a share of the step.

    They add up to one but for noise. `bytes_per_step` is what the strategy has to send,
    `counted_bytes` what network interfaces counted; None where ranks shared memory. Both again
    for an epoch of `epoch_steps`; None where nobody knows how many images that has.
    """

    compute: float
    waiting: float
    exposed: float
    bytes_per_step: int
    counted_bytes: float | None
    epoch_steps: int | None
    bytes_per_epoch: int | None
    counted_bytes_per_epoch: float | None


def shares(records: Sequence[Record]) -> Shares | None:
    """The shares of a cell from its launches that are ok; None where they tell nothing."""
    told = [
        (record.communication, statistics.median(record.measurement.step_seconds))
        for record in records
        if record.status == "ok" and record.communication and record.measurement
    ]
    request = records[-1].request
    told = [(one, step) for one, step in told if one.compute_seconds]
    if not told:
        return None
    last = told[-1][0]
    nodes = request.nodes if request else 1
    counted = statistics.median(_counted(one, nodes) for one, _ in told) or None
    steps = epoch_steps(request)
    return Shares(
        compute=statistics.median(statistics.median(c.compute_seconds) / s for c, s in told),
        waiting=statistics.median(statistics.median(c.waiting_seconds) / s for c, s in told),
        exposed=statistics.median(statistics.median(c.exposed_seconds) / s for c, s in told),
        bytes_per_step=last.bytes_per_step,
        counted_bytes=counted,
        epoch_steps=steps,
        bytes_per_epoch=steps and steps * last.bytes_per_step,
        counted_bytes_per_epoch=counted and steps and steps * counted,
    )


def epoch_steps(request: Request | None) -> int | None:
    """Updates in an epoch: its images in whole batches; None where that is not known."""
    workload = workloads().get(request.workload) if request else None
    if request is None or workload is None:
        return None
    stored = request.data_set
    images = stored.train_images if stored else images_per_epoch(request.data, workload)
    return images and images // request.global_batch_size


def _counted(one: Communication, nodes: int) -> float:
    """On several nodes what went from one to another, on one what went over its loopback."""
    if nodes == 1:
        return one.interface_bytes.get("lo", 0.0)
    return sum(count for name, count in one.interface_bytes.items() if name != "lo")
