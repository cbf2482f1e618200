"""Merges the communication that the ranks of a launch reported."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def merge_communication(
    rank_reports: Sequence[Mapping[str, Any] | None],
    steps: Sequence[float],
    nodes: int,
    *,
    asynchronous: bool = False,
) -> dict[str, Any] | None:
    """The launch's communication from what its ranks told, in order; None where one told nothing.

    `steps` are the seconds of its timed steps. Interfaces are counted once on each node. Where
    no rank waits for another, computing too is a harmonic mean: that of the ranks' rates.
    """
    reports = [report for report in rank_reports if report is not None]
    if len(reports) < len(rank_reports) or not reports:
        return None
    series = list(zip(*(report["compute_seconds"] for report in reports), strict=False))
    mean = statistics.harmonic_mean if asynchronous else statistics.fmean
    computing = [mean(rank_seconds) for rank_seconds in series]
    slowest = computing if asynchronous else [max(rank_seconds) for rank_seconds in series]
    median_seconds = statistics.median(slowest)
    links = [
        {**link, "node": node}
        for node, report in enumerate(reports[:: len(reports) // nodes])
        for link in report["links"]
    ]
    sent: Counter[str] = Counter()
    for link in links:
        if link["kind"] in ("loopback", "network"):
            sent[link["name"]] += link["sent_bytes"]
    return {
        "payload_bytes": reports[0]["payload_bytes"],
        "interface_bytes": dict(sent),
        "links": links,
        "uncounted": reports[0]["uncounted"],
        "compute_seconds": computing,
        "waiting_seconds": [last - mean for last, mean in zip(slowest, computing, strict=True)],
        "exposed_seconds": [step - median_seconds for step in steps],
    }


def required_bytes(payload: int, ranks: int, *, server: bool) -> int:
    """Bytes that all ranks together have to send in a step, at the least.

    To a parameter server and back, `payload` each way and rank; in an all-reduce 2 (n - 1) / n
    of it from each of n ranks, which no algorithm can do with less (Patarasuk and Yuan,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
    """
    return 2 * ranks * payload if server else 2 * (ranks - 1) * payload
