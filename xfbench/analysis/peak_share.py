"""The share of the machine's peak that the launches of a cell reach, with its interval.

Both sides are usual ones: usual launches, and usual matrix products of several tries. Dividing by
the best product of all would make every share too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from xfbench.host.roofline import usual_matrix_product
from xfbench.model.gpus import count_devices
from xfbench.model.record import Record
from xfbench.statistics import (
    Block,
    Interval,
    has_valid_steps,
    interval_of_launches,
    launch_throughput,
    next_block,
)


def share_of_usual_peak(records: Sequence[Record]) -> Interval | None:
    """Return the operations of training per second as a share of a usual matrix product.

    A multiply-add counts as two operations. Each rank has its own cores or GPU, so the peak of a
    launch is that of a rank times the number of ranks. Ranks that share a GPU count once.

    The interval combines that of the launches with that of the tries: the squares of the
    half-widths of the logarithms are added. Without tries, it is that of the launches alone.

    A launch without a limit, or with a limit whose tries differ too much, does not count. Returns
    None if no launch counts. A share above 1 of a measured product is unknown too: other work
    slowed the products down, because no launch is faster than the peak.
    """
    shares: dict[Block, float] = {}
    peaks: list[Interval] = []
    for record in records:
        share_and_peak = _share_and_peak(record)
        if share_and_peak:
            share, peak = share_and_peak
            shares[next_block(record, shares)] = share
            peaks.append(peak)
    if not shares:
        return None
    usual = _widen(interval_of_launches(shares), peaks)
    return None if usual.value > 1 and has_measured_peak(records) else usual


def has_measured_peak(records: Iterable[Record]) -> bool:
    """Return whether a launch that counts has a measured peak.

    If the share is unknown all the same, the matrix products were disturbed.
    """
    return any(
        record.limit is not None and record.limit.source == "measured" and _is_counted(record)
        for record in records
    )


def _is_counted(record: Record) -> bool:
    return record.status == "ok" and has_valid_steps(record)


def _share_and_peak(record: Record) -> tuple[float, Interval] | None:
    request, workload, limit = record.request, record.workload, record.limit
    if not _is_counted(record):
        return None
    if request is None or workload is None or limit is None:
        return None
    peak = usual_matrix_product(limit)
    if peak is None:
        return None
    operations = 2 * workload.train_macs_per_image * launch_throughput(record)
    gpus = record.observed.gpus if record.observed else ()
    share = operations / (peak.value * count_devices(gpus, request.ranks))
    return (share, peak) if share > 0 else None


def _widen(share: Interval, peaks: Iterable[Interval]) -> Interval:
    """Return the share with the widest interval of the peaks added to its own."""
    peaks = list(peaks)
    peak_ends = [
        (p.value, p.low, p.high) for p in peaks if p.low is not None and p.high is not None
    ]
    if share.low is None or share.high is None or not peak_ends:
        return share
    above_peak = max(math.log(high / value) for value, _, high in peak_ends)
    below_peak = max(math.log(value / low) for value, low, _ in peak_ends)
    return replace(
        share,
        low=share.value * math.exp(-math.hypot(math.log(share.value / share.low), above_peak)),
        high=share.value * math.exp(math.hypot(math.log(share.high / share.value), below_peak)),
        confidence=None if any(p.confidence is None for p in peaks) else share.confidence,
    )
