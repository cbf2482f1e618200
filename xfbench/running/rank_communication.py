"""What the ranks of a launch exchanged, merged from what each of them replied."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


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
