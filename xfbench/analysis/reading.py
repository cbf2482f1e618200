"""Cost of reading input in a launch, and differences between readers."""

from __future__ import annotations

from collections.abc import Iterable

from xfbench.model.record import Record


def largest_reader_pixel_difference(records: Iterable[Record]) -> int | None:
    """Return the largest pixel difference between a framework's reader and xfbench's reader.

    The difference is in levels of 0 to 255. Returns None if no launch used a framework's reader.
    """
    checks = [record.storage.reader for record in records if record.storage]
    return max((check.largest_difference for check in checks if check), default=None)


def input_waiting_share(record: Record) -> float | None:
    """Return the share of the timed steps' time that was spent waiting for input.

    Returns None if the launch is not ok or did not measure this share.
    """
    measurement = record.measurement
    if record.status != "ok" or measurement is None or "input_seconds" not in measurement.phases:
        return None
    training_seconds = sum(measurement.step_seconds) * measurement.window
    return measurement.phases["input_seconds"] / training_seconds if training_seconds else None


def input_cpu_share(record: Record) -> float | None:
    """Return the share of the launch's CPU time that input threads and processes used.

    Returns None if the launch is not ok or did not measure this share.
    """
    phases = record.measurement.phases if record.measurement else {}
    cpu_seconds, input_cpu_seconds = phases.get("cpu_seconds"), phases.get("input_cpu_seconds")
    return (
        input_cpu_seconds / cpu_seconds
        if record.status == "ok" and cpu_seconds and input_cpu_seconds is not None
        else None
    )
