"""What ranks exchange, and what it costs: shares of a step from what each rank told.

A step of all ranks takes as long as the slowest rank computes, and what of the exchange that
does not hide. What each computes is measured by steps in which it joins nothing.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench.records.record import Communication, Record
from xfbench.request import Request
from xfbench.worker.input import epoch_images
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
    images = stored.train_images if stored else epoch_images(request.data, workload)
    return images and images // request.global_batch_size


def _counted(one: Communication, nodes: int) -> float:
    """On several nodes what went from one to another, on one what went over its loopback."""
    if nodes == 1:
        return one.interface_bytes.get("lo", 0.0)
    return sum(count for name, count in one.interface_bytes.items() if name != "lo")


def shared(
    told: Sequence[Mapping[str, Any] | None],
    steps: Sequence[float],
    nodes: int,
    *,
    asynchronous: bool = False,
) -> dict[str, Any] | None:
    """The launch's communication from what its ranks told, in order; None where one told nothing.

    `steps` are the seconds of its timed steps. Interfaces are counted once on each node. Where
    no rank waits for another, computing too is a harmonic mean: that of the ranks' rates.
    """
    known = [one for one in told if one is not None]
    if len(known) < len(told) or not known:
        return None
    series = list(zip(*(one["compute_seconds"] for one in known), strict=False))
    of_step = statistics.harmonic_mean if asynchronous else statistics.fmean
    computing = [of_step(alone) for alone in series]
    slowest = computing if asynchronous else [max(alone) for alone in series]
    usual = statistics.median(slowest)
    links = [
        {**link, "node": node}
        for node, one in enumerate(known[:: len(known) // nodes])
        for link in one["links"]
    ]
    sent: Counter[str] = Counter()
    for link in links:
        if link["kind"] in ("loopback", "network"):
            sent[link["name"]] += link["sent_bytes"]
    return {
        "payload_bytes": known[0]["payload_bytes"],
        "interface_bytes": dict(sent),
        "links": links,
        "uncounted": known[0]["uncounted"],
        "compute_seconds": computing,
        "waiting_seconds": [last - mean for last, mean in zip(slowest, computing, strict=True)],
        "exposed_seconds": [step - usual for step in steps],
    }


def asked_bytes(payload: int, ranks: int, *, server: bool) -> int:
    """Bytes that all ranks together have to send in a step, at the least.

    To a parameter server and back, `payload` each way and rank; in an all-reduce 2 (n - 1) / n
    of it from each of n ranks, which no algorithm can do with less (Patarasuk and Yuan,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
    """
    return 2 * ranks * payload if server else 2 * (ranks - 1) * payload
