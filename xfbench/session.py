"""Runs the launches of an experiment one after another, and stores a record of each launch.

The plan mixes the launches of different cells in a seeded random order. Therefore slow changes of
the machine affect all cells alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xfbench import statistics
from xfbench.execution.launch import LaunchContext, run_launch
from xfbench.model.record import Record
from xfbench.model.request import Cell, Protocol, Request


def run_requests(
    requests: Iterable[Request],
    context: LaunchContext,
    protocols: Mapping[Cell, Protocol] | None = None,
    earlier_records_for_precision: Iterable[Record] = (),
) -> Iterator[Record]:
    """Launch the requests one after another; store and yield the record of each launch.

    - `protocols`: the protocol of each cell. Without a protocol, a cell has no precision to reach.
    - `earlier_records_for_precision`: records of earlier launches. Their throughput is used too
      when the precision of their cells is computed.

    The remaining requests of a cell are skipped in these cases:

    - A launch of the cell has the status "unsupported" or "unavailable".
    - The cell has reached the precision in its protocol.
    """
    context.store.create_and_check_folders()
    finished: set[Cell] = set()
    speeds: dict[Cell, list[float]] = defaultdict(list)
    for record in earlier_records_for_precision:
        if record.request:
            speeds[record.request.cell()] += statistics.counted_speeds_by_block([record]).values()
    for request in requests:
        cell = request.cell()
        protocol = protocols.get(cell) if protocols else None
        if cell in finished or (protocol and _is_enough(speeds[cell], protocol)):
            continue
        record, folder = run_launch(request, context, protocol)
        context.store.add(record, folder)
        if record.status in ("unsupported", "unavailable"):
            finished.add(cell)
        speeds[cell] += statistics.counted_speeds_by_block([record]).values()
        yield record


def _is_enough(speeds: Sequence[float], protocol: Protocol) -> bool:
    if protocol.precision is None or len(speeds) < protocol.least:
        return False
    return statistics.is_precise(speeds, protocol.precision)
