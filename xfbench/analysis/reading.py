"""Input cost of a launch, and the pixel difference of a framework's own reader."""

from __future__ import annotations

from collections.abc import Iterable

from xfbench.model.record import Record


def largest_reader_pixel_difference(records: Iterable[Record]) -> int | None:
    """Return the largest difference between a framework's reader and xfbench's.

    Returns None if xfbench reads the input.
    """
    checks = [record.storage.reader for record in records if record.storage]
    return max((check.largest_difference for check in checks if check), default=None)


def input_waiting_share(record: Record) -> float | None:
    """Return the share of the timed steps that a launch spent waiting for input."""
    measurement = record.measurement
    if record.status != "ok" or measurement is None or "input_seconds" not in measurement.phases:
        return None
    training_seconds = sum(measurement.step_seconds) * measurement.window
    return measurement.phases["input_seconds"] / training_seconds if training_seconds else None


def input_cpu_share(record: Record) -> float | None:
    """Return the share of CPU time that input threads and processes used."""
    phases = record.measurement.phases if record.measurement else {}
    cpu_seconds, input_cpu_seconds = phases.get("cpu_seconds"), phases.get("input_cpu_seconds")
    return (
        input_cpu_seconds / cpu_seconds
        if record.status == "ok" and cpu_seconds and input_cpu_seconds is not None
        else None
    )
