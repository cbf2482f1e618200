"""What a launch's input cost it, and whether a framework's own reader gave the same pixels."""

from __future__ import annotations

from collections.abc import Iterable

from xfbench.records.record import Record


def pixels_off(records: Iterable[Record]) -> int | None:
    """The largest difference of a framework's own reader from ours; None where we read."""
    checks = [record.storage.reader for record in records if record.storage]
    return max((check.largest_difference for check in checks if check), default=None)


def waiting_share(record: Record) -> float | None:
    """The part of its timed steps that a launch waited for input."""
    measured = record.measurement
    if record.status != "ok" or measured is None or "input_seconds" not in measured.phases:
        return None
    passed = sum(measured.step_seconds) * measured.window
    return measured.phases["input_seconds"] / passed if passed else None


def cpu_share(record: Record) -> float | None:
    """The part of its CPU time that threads and processes took which give input."""
    phases = record.measurement.phases if record.measurement else {}
    used, reading = phases.get("cpu_seconds"), phases.get("input_cpu_seconds")
    return reading / used if record.status == "ok" and used and reading is not None else None
