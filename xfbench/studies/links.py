"""The analysis of what went over links, against what ranks have to send at the least."""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.analysis import statistics
from xfbench.analysis.communication import epoch_steps
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.statistics import Interval
from xfbench.records.record import Link, Record
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import Measured
from xfbench.studies.finding import Finding, Value, judge
from xfbench.studies.form import Analysis
from xfbench.studies.quantities import Quantity, launches
from xfbench.studies.wording import figure

_DEVICES = ("nvlink", "pcie")
# What one way and the other are called; of a network what one node receives another has sent.
_WAYS = {"sent_bytes": "out", "received_bytes": "in"}


def links(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """Gigabytes of an epoch over each link of each cell; why others were not counted."""
    found: list[Value] = []
    notes: dict[str, None] = {}
    for one in cells:
        name = of_cells.name(one, cells)
        good = [record for record in one.steady() if record.communication]
        known = {(link.node, link.kind, link.name): link for r in good for link in _links(r)}
        for key, link in sorted(known.items()):
            for way in _WAYS if link.kind in _DEVICES else ("sent_bytes",):
                found.append(_row(one, name, key, link, way))
        if not known:
            last = one.records[-1]
            reason = last.reason if last.status != "ok" else "no link was counted"
            found.append(Value(name, "", None, None, analyses.fields(one), reason))
        for record in good:
            assert record.communication
            for kind, why in record.communication.uncounted.items():
                notes[f"{kind} was not counted: {why}"] = None
    known_values = [(one, one.interval) for one in found if one.interval]
    sentence = "No link's counter says what went over it."
    if known_values:
        most = max(known_values, key=lambda pair: pair[1].value)
        sentence = (
            f"Most went over {most[0].at} ({most[0].name}): {figure(most[1], 'GB')} in an epoch, "
            f"{most[0].note}."
        )
    return Finding(
        title=of.title or "What went over links",
        sentence=sentence,
        over="link",
        unit="GB",
        values=tuple(found),
        judged=judge(of.claim, found, lambda interval: figure(interval, "GB")),
        plot=of.plot,
        beside=of.beside,
        notes=tuple(notes),
    )


def _links(record: Record) -> Sequence[Link]:
    """Records of before there were links have what their interfaces sent, of all nodes together."""
    told = record.communication
    if told is None or told.links:
        return told.links if told else ()
    return [
        Link(
            node=0,
            kind="loopback" if name == "lo" else "network",
            name=name,
            sent_bytes=sent,
            received_bytes=0.0,
        )
        for name, sent in told.interface_bytes.items()
    ]


def _row(one: Measured, name: str, key: tuple[int, str, str], link: Link, way: str) -> Value:
    def of_epoch(record: Record) -> float | None:
        steps = epoch_steps(record.request)
        sent = _of_step(record, key, way)
        return sent * steps / 1e9 if sent is not None and steps else None

    node, kind, called = key
    own = launches(Quantity("bytes", "GB", of_epoch), one.records)
    interval = statistics.geometric_interval([*own.values()]) if own else None
    direction = f" {_WAYS[way]}" if kind in _DEVICES else ""
    where = f", node {node}" if one.request.nodes > 1 else ""
    reason = None if interval else "nothing went over it, or nobody knows how long an epoch is"
    fields = {**analyses.fields(one), "link": kind}
    note = _note(one, key, link, way, interval)
    return Value(name, f"{kind} {called}{direction}{where}", None, interval, fields, reason, note)


def _note(
    one: Measured, key: tuple[int, str, str], link: Link, way: str, interval: Interval | None
) -> str:
    """Bytes of a step against the least, and the seconds that these take the link at the least."""
    own = launches(Quantity("bytes", "B", lambda record: _of_step(record, key, way)), one.records)
    if not own or interval is None:
        return ""
    sent = statistics.geometric_interval([*own.values()]).value
    least = next(told.bytes_per_step for r in one.steady() if (told := r.communication))
    words = [f"{sent / 1e6:.3g} MB a step"]
    if least:
        words.append(f"{sent / least:.3g} times the {least / 1e6:.3g} MB that all ranks must send")
    if link.bits_per_second:
        words.append(f"{8 * sent / link.bits_per_second:.2g} s of the link's time at the least")
    return ", ".join(words)


def _of_step(record: Record, key: tuple[int, str, str], way: str) -> float | None:
    for link in _links(record):
        if (link.node, link.kind, link.name) == key:
            value: float = getattr(link, way)
            return value
    return None
