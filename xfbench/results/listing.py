"""Records as text for a terminal: many in a table, or one whole.

Whatever a record says is shown as it is written: what would move the cursor, colour the
screen or turn the direction of writing is spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tabulate import tabulate

from xfbench.analysis.statistics import launch_throughput
from xfbench.base.terminal_text import make_legible
from xfbench.records.provenance import impossible, not_measured
from xfbench.records.record import Record
from xfbench.results.store import Place, Store

_LONGEST = 160  # characters of a value
_MOST = 12  # elements of a list


def table(records: Sequence[Record]) -> str:
    """A line for each; what was not measured here says which figure it is, and from where."""
    headers = [
        *("record", "created", "status", "source", "workload", "framework", "kernel"),
        *("ranks", "threads", "batch", "launch", "images/s"),
    ]
    lines = []
    for record in records:
        request = record.request
        speed = images_per_second(record)
        asked: list[Any] = ["–"] * 7
        if request:
            asked = [
                *(request.workload, request.framework, request.kernel, request.ranks),
                *(request.threads, request.global_batch_size, request.launch),
            ]
        elif record.figure and record.figure.about:
            about = record.figure.about
            told = [about.workload, about.framework, about.kernel, about.ranks, about.threads]
            asked = ["–" if one is None else one for one in (*told, about.global_batch_size, None)]
        line = [
            *(record.id[7:19], record.created[:19], record.status, record.source, *asked),
            "–" if speed is None else f"{speed:.4g}",
        ]
        if any(one.figure for one in records):
            line += [figure(record) or "–", record.citation.key if record.citation else "–"]
        lines.append([make_legible(str(one), 40) for one in line])
    if any(one.figure for one in records):
        headers += ["figure", "from"]
    return tabulate(lines, headers, "simple", disable_numparse=True)


def figure(record: Record) -> str | None:
    """What was printed elsewhere, in words: "time per call (median) 0.0123 s"."""
    found = record.figure
    if found is None:
        return None
    value = "" if found.value is None else f"{found.value:.4g}"
    ends = ["?" if one is None else f"{one:.4g}" for one in (found.low, found.high)]
    if not value and ends != ["?", "?"]:
        value = "–".join(ends)
    return f"{found.quantity} {value} {found.unit}".strip()


def images_per_second(record: Record) -> float | None:
    """The launch's throughput; None where it has none that counts, or is not xfbench's."""
    if record.status != "ok" or record.measurement is None or record.request is None:
        return None
    if not_measured(record) or impossible(record):
        return None
    return launch_throughput(record) or None


def whole(record: Record, place: Place, store: Store) -> str:
    """Everything that is known of one record, a line for each field that has something."""
    speed = images_per_second(record)
    lines = [
        f"{path}  {make_legible(value, _LONGEST)}" for path, value in _lines("", record.document())
    ]
    if speed is not None:
        lines.append(f"images per second  {speed:.5g} (by the median step)")
    at = f" at byte {place.offset}" if place.length is not None else ""
    lines.append(f"kept in  {make_legible(str(place.path), 4096)}{at}")
    run = store.run_folder(record)
    if run.is_dir():
        lines.append(f"run  {make_legible(str(run), 4096)} (command.sh there runs it again)")
    return "\n".join(lines)


def _lines(above: str, value: Any) -> Iterator[tuple[str, str]]:
    if value is None or value in ([], {}):
        return
    if isinstance(value, dict):
        for name, one in value.items():
            path = f"{above}.{name}" if above else name
            yield from _lines(make_legible(path, _LONGEST), one)
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        for number, one in enumerate(value[:_MOST], 1):
            yield from _lines(f"{above}[{number}]", one)
        if len(value) > _MOST:
            yield above, f"… {len(value)} in all"
    elif isinstance(value, list):
        words = ", ".join(make_legible(_word(one), _LONGEST) for one in value[:_MOST])
        yield above, words if len(value) <= _MOST else f"{words}, … ({len(value)} in all)"
    else:
        yield above, _word(value)


def _word(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
