"""Cost of reading input in a launch, and differences between readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from xfbench.model.record import Record
from xfbench.model.request import Request


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


def describe_media(request: Request, records: Iterable[Record]) -> str | None:
    """Return the file system and device of the data set, or None without a prepared data set.

    If the launches read from several network file systems, the text says so. Hashes of their names
    can be compared only if they have the same salt, which records of one host have. Hashes of
    earlier versions have no salt, and another length.
    """
    if request.data_set is None:
        return None
    hashes_by_salt: dict[tuple[str, int], set[str]] = defaultdict(set)
    for record in records:
        if record.storage and (source_hash := record.storage.medium.source_hash):
            host = record.machine.hostname_hash if record.machine else ""
            hashes_by_salt[host, len(source_hash)].add(source_hash)
    count = len({each for hashes in hashes_by_salt.values() for each in hashes})
    is_sure = count == max(map(len, hashes_by_salt.values()), default=0)
    several = f" ({'' if is_sure else 'up to '}{count} file systems)" if count > 1 else ""
    return f"{request.data_set.medium}{several}"


def describe_reader(request: Request, records: Iterable[Record]) -> str | None:
    """Return the reader of the data set, or None without a prepared data set.

    If a launch decoded images to other pixels than the data set lists, the text says so.
    """
    checks = [record.storage.decoder for record in records if record.storage]
    if request.input and any(check and check.differing for check in checks):
        return f"{request.input}, other decoder"
    return request.input
