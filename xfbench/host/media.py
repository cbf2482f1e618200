"""The storage medium of a folder, and its read speed.

`worker/mounts.py` finds the medium, and `worker/reading.py` reads the files. Both are parts of the
worker, so that each compute node can report its own medium.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from xfbench.base import name_hashes
from xfbench.base.errors import XfbenchError
from xfbench.host import striping
from xfbench.model.record import Medium, ReadRound, Reads, Striping
from xfbench.statistics import Interval, median_interval
from xfbench.worker import mounts, pages, reading
from xfbench.worker.page_cache import TOLERANCE

MANIFEST = "manifest.json"


class UnreadableError(XfbenchError):
    """A folder cannot be read or written. The message says which folder and why."""


@dataclass(frozen=True)
class Speed:
    """The speed of one read pattern, computed from several rounds of reads.

    - `bytes_per_second`, `operations_per_second`: medians over the rounds, with their intervals. An
      operation is one read.
    - `resident_bytes`: how many bytes of the files were in memory when a round started. This is the
      maximum over the rounds, or None if unknown.
    - `from_device`: the share of the bytes in a round that came from storage (0 to 1). This is the
      minimum over the rounds, or None if unknown.
    """

    bytes_per_second: Interval
    operations_per_second: Interval
    resident_bytes: int | None
    from_device: float | None

    @property
    def is_cold(self) -> bool | None:
        """Return whether all bytes came from the device, within 2 %. None if unknown."""
        return None if self.from_device is None else self.from_device >= 1 - TOLERANCE


def describe_medium(folder: Path) -> Medium:
    """Return the storage medium of `folder`. Raises UnreadableError if it cannot be read."""
    try:
        medium = _build_medium(mounts.storage_facts(folder))
        return medium.model_copy(update={"striping": striping.read_striping(folder)})
    except OSError as error:
        raise UnreadableError(f"{folder}: {error.strerror}") from error


def _build_medium(facts: Mapping[str, Any]) -> Medium:
    """Return the medium with a hash in place of the server's name."""
    source, below = facts["source"], tuple(map(_build_medium, facts["below"]))
    source_hash = None if source is None else name_hashes.file_system_hash(source)
    described = {name: value for name, value in facts.items() if name != "source"}
    return Medium.model_validate({**described, "source_hash": source_hash, "below": below})


def evict_and_measure_reads_by_pattern(
    folder: Path,
    max_round_bytes: int = reading.SIZE,
    rounds: int = reading.ROUNDS,
) -> tuple[Reads, ...]:
    """Measure the read speed of evicted files with each pattern of `worker/reading.py`.

    Before each round, the files are evicted from memory. No framework takes part.

    - `folder`: a data set's folder or a single file, which is read. In any other folder, a
      temporary file is written and read.
    - `max_round_bytes`: the maximum number of bytes in a round.
    - `rounds`: the number of rounds for each pattern.

    The reads take at most `rounds` times six seconds. Writing a temporary file takes additional
    time. Raises UnreadableError if the folder cannot be read or written.
    """
    try:
        if (folder / MANIFEST).is_file() or folder.is_file():
            files = reading.draw_files(pages.files_under(folder), max_round_bytes)
            return _measure_files(files, max_round_bytes, rounds)
        with reading.temporary_file(folder, max_round_bytes) as file:
            return _measure_files([file], max_round_bytes, rounds)
    except reading.NotEnoughData as error:
        raise UnreadableError(f"{folder}: {error}") from error
    except OSError as error:
        raise UnreadableError(f"{folder}: {error.strerror}") from error


def compute_speed(reads: Reads) -> Speed:
    """Compute the speed of one read pattern from the rounds in `reads`."""
    device_shares = [_device_share(read_round) for read_round in reads.rounds]
    resident_counts = [read_round.resident_bytes for read_round in reads.rounds]
    return Speed(
        bytes_per_second=median_interval(
            [read_round.bytes / read_round.seconds for read_round in reads.rounds]
        ),
        operations_per_second=median_interval(
            [read_round.operations / read_round.seconds for read_round in reads.rounds]
        ),
        resident_bytes=None
        if None in resident_counts
        else max(resident for resident in resident_counts if resident is not None),
        from_device=None
        if None in device_shares
        else min(share for share in device_shares if share is not None),
    )


def build_storage_document(medium: Medium, reads: Sequence[Reads]) -> dict[str, Any]:
    """Return the document that `machine --read --json` prints: the medium, and all speeds."""
    return {
        "medium": medium.model_dump(mode="json"),
        "reads": [
            {**pattern_reads.model_dump(mode="json"), **asdict(figures), "is_cold": figures.is_cold}
            for pattern_reads in reads
            for figures in [compute_speed(pattern_reads)]
        ],
    }


def format_storage_lines(medium: Medium, reads: Sequence[Reads]) -> list[str]:
    """Return the lines that `machine --read` prints."""
    speeds = [compute_speed(pattern_reads) for pattern_reads in reads]
    table = tabulate(
        [
            [
                f"{pattern_reads.pattern}, {format_byte_size(pattern_reads.block_bytes)}",
                _format_interval(speed.bytes_per_second, 1e-6),
                _format_interval(speed.operations_per_second, 1),
                "unknown"
                if speed.resident_bytes is None
                else format_byte_size(speed.resident_bytes),
                "unknown" if speed.from_device is None else f"{speed.from_device:.0%}",
            ]
            for pattern_reads, speed in zip(reads, speeds, strict=True)
        ],
        headers=["reads", "MB/s", "reads/s", "in memory before", "from the device"],
        tablefmt="simple",
        disable_numparse=True,
    )
    reasons = dict.fromkeys(pattern_reads.reason for pattern_reads in reads if pattern_reads.reason)
    notes = [f"xfbench could not check that reads were cold: {reason}." for reason in reasons]
    if not reasons and any(speed.is_cold is None for speed in speeds):
        notes = ["xfbench could not check that reads were cold: the system counted no read."]
    if any(speed.is_cold is False for speed in speeds):
        notes += ["Some bytes came from memory: the figures are not those of the device alone."]
    rounds = max(len(pattern_reads.rounds) for pattern_reads in reads)
    return [
        *_format_medium_lines(medium),
        "",
        *table.splitlines(),
        f"Medians of {rounds} rounds with 95 % intervals; one thread, one read at a time.",
        *notes,
    ]


def format_byte_size(byte_count: int) -> str:
    """Format a number of bytes with a binary unit, such as "4 KiB"."""
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if byte_count >= unit_bytes:
            return f"{byte_count / unit_bytes:.4g} {unit}"
    return f"{byte_count} B"


def describe_striping(striping_of_files: Sequence[Striping]) -> str:
    """Return a short text, such as "4 stripes of 1 MiB". Empty if the striping is unknown."""
    return " and ".join(
        f"{part.count} stripe{'' if part.count == 1 else 's'} of {format_byte_size(part.bytes)}"
        for part in striping_of_files
    )


def _format_medium_lines(medium: Medium, indent: str = "") -> list[str]:
    rotation = {True: ", rotating", False: ", not rotating", None: ""}[medium.rotational]
    disks = (
        f" of {' and '.join(medium.disks)}" if medium.disks not in ((), (medium.device,)) else ""
    )
    stripes = f"; {describe_striping(medium.striping)}" if medium.striping else ""
    return [
        f"{indent}{medium.file_system} on {medium.device}{disks}{rotation}, "
        f"{format_byte_size(medium.free_bytes)} of {format_byte_size(medium.total_bytes)} free, "
        f"blocks of {format_byte_size(medium.block_bytes)}; {','.join(medium.options)}{stripes}",
        *(
            line
            for lower_medium in medium.below
            for line in _format_medium_lines(lower_medium, f"{indent}  stored on ")
        ),
    ]


def _format_interval(interval: Interval, scale: float) -> str:
    if interval.low is None or interval.high is None:
        return f"{scale * interval.value:,.0f}"
    low, high = scale * interval.low, scale * interval.high
    return f"{scale * interval.value:,.0f} ({low:,.0f} – {high:,.0f})"


def _device_share(read_round: ReadRound) -> float | None:
    """Return the share of a round's bytes that came from storage (0 to 1); None if unknown.

    If the system counted no bytes from storage, some bytes of the files must have been in memory.
    Otherwise the count is wrong, and the share is unknown.
    """
    if read_round.device_bytes is None or not (
        read_round.device_bytes or read_round.resident_bytes
    ):
        return None
    return min(1.0, read_round.device_bytes / read_round.bytes)


def _measure_files(files: Sequence[Path], max_round_bytes: int, rounds: int) -> tuple[Reads, ...]:
    return tuple(
        Reads.model_validate(reads)
        for reads in reading.measure_read_speed(files, max_round_bytes, rounds)
    )
