"""The analysis of network and device links: measured traffic and the traffic that is required."""

from __future__ import annotations

from collections.abc import Sequence

from xfbench import statistics
from xfbench.analysis.communication import epoch_steps
from xfbench.analysis.leaderboard import Certificates
from xfbench.model.record import Link, Record
from xfbench.planning.study_form import Analysis
from xfbench.statistics import Interval
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Finding, Value, judge_claims_with_bounds
from xfbench.studies.quantities import Quantity, counted_values_by_block
from xfbench.studies.wording import format_number_without_unit, format_value_with_bounds

_DEVICE_LINKS = ("nvlink", "pcie")
# Directions by counter. On networks, only sent bytes count: the sender counts received bytes.
_DIRECTIONS = {"sent_bytes": "out", "received_bytes": "in"}


def analyze_links(analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates) -> Finding:
    """Return a finding with the gigabytes per epoch over each link of each cell.

    Some kinds of links have no counter. The notes of the finding name these kinds, with the reason.
    """
    values: list[Value] = []
    notes: dict[str, None] = {}
    for cell in cells:
        name = of_cells.cell_name(cell, cells)
        counted_records = [record for record in cell.ok_records() if record.communication]
        links = {
            (link.node, link.kind, link.name): link
            for r in counted_records
            for link in _links_of_record(r)
        }
        for key, link in sorted(links.items()):
            for counter in _DIRECTIONS if link.kind in _DEVICE_LINKS else ("sent_bytes",):
                values.append(_build_traffic_value(analysis, cell, name, key, link, counter))
        if not links:
            last = cell.records[-1]
            reason = last.reason if last.status != "ok" else "no link was counted"
            values.append(
                Value(name, "", None, None, analyses.settings_and_strategy_options(cell), reason)
            )
        for record in counted_records:
            assert record.communication
            for kind, cause in record.communication.uncounted.items():
                notes[f"{kind} was not counted: {cause}"] = None
    measured = [(value, value.interval) for value in values if value.interval]
    sentence = "No figure per epoch is known for any link."
    if measured:
        largest = max(measured, key=lambda pair: pair[1].value)
        sentence = (
            f"The busiest link is {largest[0].at} ({largest[0].name}): "
            f"{format_value_with_bounds(largest[1], 'GB')} per epoch, "
            f"{largest[0].note}."
        )
    return Finding(
        title=analysis.title or "Traffic over links",
        sentence=sentence,
        over="link",
        unit="GB",
        values=tuple(values),
        judged=judge_claims_with_bounds(
            analysis.claim, values, lambda interval: format_value_with_bounds(interval, "GB")
        ),
        plot=analysis.plot,
        beside=analysis.beside,
        notes=tuple(notes),
    )


def _links_of_record(record: Record) -> Sequence[Link]:
    """Return the links of a record.

    An old record has no links. It only has the bytes that each network interface sent, summed over
    all nodes. For such a record, return one link per interface, with node number 0.
    """
    communication = record.communication
    if communication is None or communication.links:
        return communication.links if communication else ()
    return [
        Link(
            node=0,
            kind="loopback" if name == "lo" else "network",
            name=name,
            sent_bytes=sent,
            received_bytes=0.0,
        )
        for name, sent in communication.interface_bytes.items()
    ]


def _build_traffic_value(
    analysis: Analysis,
    cell: MeasuredCell,
    name: str,
    key: tuple[int, str, str],
    link: Link,
    counter: str,
) -> Value:
    def gigabytes_per_epoch(record: Record) -> float | None:
        steps = epoch_steps(record.request, analysis.epoch_images)
        sent = _link_bytes_per_step(record, key, counter)
        return sent * steps / 1e9 if sent is not None and steps else None

    node, kind, link_name = key
    link_launches = counted_values_by_block(
        Quantity("bytes", "GB", gigabytes_per_epoch), cell.records
    )
    interval = statistics.interval_of_launches(link_launches) if link_launches else None
    direction = f" {_DIRECTIONS[counter]}" if kind in _DEVICE_LINKS else ""
    node_text = f", node {node}" if cell.request.nodes > 1 else ""
    reason = None if interval else "no traffic, or the length of an epoch is unknown"
    fields = {**analyses.settings_and_strategy_options(cell), "link": kind}
    note = _describe_traffic_and_required_bytes(cell, key, link, counter, interval)
    return Value(
        name, f"{kind} {link_name}{direction}{node_text}", None, interval, fields, reason, note
    )


def _describe_traffic_and_required_bytes(
    cell: MeasuredCell,
    key: tuple[int, str, str],
    link: Link,
    counter: str,
    interval: Interval | None,
) -> str:
    """Return a text on the link's traffic; "" if the bytes per step are unknown.

    - The text states the bytes per step.
    - If the number of bytes that all ranks must send is known, the text states the ratio to it.
    - If the capacity of the link is known, the text states the minimum time that the bytes take.
    """
    link_launches = counted_values_by_block(
        Quantity("bytes", "B", lambda record: _link_bytes_per_step(record, key, counter)),
        cell.records,
    )
    if not link_launches or interval is None:
        return ""
    sent = statistics.interval_of_launches(link_launches).value
    required_bytes = next(
        communication.bytes_per_step
        for r in cell.ok_records()
        if (communication := r.communication)
    )
    megabytes, required = (
        format_number_without_unit(count / 1e6, "MB") for count in (sent, required_bytes)
    )
    phrases = [f"{megabytes} MB per step"]
    if required_bytes:
        phrases.append(
            f"{format_number_without_unit(sent / required_bytes, 'times')} times the {required} MB "
            "that all ranks must send"
        )
    if link.bits_per_second:
        phrases.append(f"at least {8 * sent / link.bits_per_second:.2g} s on the link")
    return ", ".join(phrases)


def _link_bytes_per_step(record: Record, key: tuple[int, str, str], counter: str) -> float | None:
    for link in _links_of_record(record):
        if (link.node, link.kind, link.name) == key:
            value: float = getattr(link, counter)
            return value
    return None
