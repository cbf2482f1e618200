"""Storage media: what a folder lies on, and how fast it gives its bytes.

Where the facts are found and the reads done is the worker's side (`worker/mounts.py`,
`worker/reading.py`), so that a compute node tells its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from xfbench.analysis.statistics import Interval, median_interval
from xfbench.base.errors import XfbenchError
from xfbench.records.record import Medium, ReadRound, Reads
from xfbench.worker import mounts, pages, reading
from xfbench.worker.page_cache import TOLERANCE

MANIFEST = "manifest.json"


class UnreadableError(XfbenchError):
    """A folder that cannot be looked at, read or written; the message says which and why."""


@dataclass(frozen=True)
class Speed:
    """Of one pattern: medians over rounds with their intervals, and how far they are the medium's.

    Before each round `resident_bytes` of the files were in memory still, or fewer, and storage
    was seen to give the share `from_device` of the bytes read, or more. None: unknown.
    """

    bytes_per_second: Interval
    operations_per_second: Interval
    resident_bytes: int | None
    from_device: float | None

    @property
    def is_cold(self) -> bool | None:
        """Whether all was seen to come from the device; None where that is unknown."""
        return None if self.from_device is None else self.from_device >= 1 - TOLERANCE


def describe(folder: Path) -> Medium:
    """What `folder` lies on. Raises UnreadableError."""
    try:
        return Medium.model_validate(mounts.facts(folder))
    except OSError as error:
        raise UnreadableError(f"{folder}: {error.strerror}") from error


def measure(
    folder: Path, size: int = reading.SIZE, rounds: int = reading.ROUNDS
) -> tuple[Reads, ...]:
    """Plain reads of a data set's own files, or of a file written in `folder` for as long.

    Takes `rounds` times six seconds at most, and the writing. Raises UnreadableError.
    """
    try:
        if (folder / MANIFEST).is_file() or folder.is_file():
            files = reading.draw_files(pages.files_under(folder), size)
            return _measured(files, size, rounds)
        with reading.temporary_file(folder, size) as file:
            return _measured([file], size, rounds)
    except reading.NotEnoughData as error:
        raise UnreadableError(f"{folder}: {error}") from error
    except OSError as error:
        raise UnreadableError(f"{folder}: {error.strerror}") from error


def speed(reads: Reads) -> Speed:
    """The figures of one pattern, as they are computed whenever somebody looks."""
    seen = [_from_device(one) for one in reads.rounds]
    left = [one.resident_bytes for one in reads.rounds]
    return Speed(
        bytes_per_second=median_interval([one.bytes / one.seconds for one in reads.rounds]),
        operations_per_second=median_interval(
            [one.operations / one.seconds for one in reads.rounds]
        ),
        resident_bytes=None if None in left else max(one for one in left if one is not None),
        from_device=None if None in seen else min(one for one in seen if one is not None),
    )


def document(medium: Medium, reads: Sequence[Reads]) -> dict[str, Any]:
    """What `machine --read --json` prints: the medium, and each pattern with its figures."""
    return {
        "medium": medium.model_dump(mode="json"),
        "reads": [
            {**one.model_dump(mode="json"), **asdict(found), "is_cold": found.is_cold}
            for one in reads
            for found in [speed(one)]
        ],
    }


def lines(medium: Medium, reads: Sequence[Reads]) -> list[str]:
    """What `machine --read` prints for people."""
    figures = [speed(one) for one in reads]
    table = tabulate(
        [
            [
                f"{one.pattern}, {size_of(one.block_bytes)}",
                _with_interval(found.bytes_per_second, 1e-6),
                _with_interval(found.operations_per_second, 1),
                "unknown" if found.resident_bytes is None else size_of(found.resident_bytes),
                "unknown" if found.from_device is None else f"{found.from_device:.0%}",
            ]
            for one, found in zip(reads, figures, strict=True)
        ],
        headers=["reads", "MB/s", "reads/s", "in memory before", "from the device"],
        tablefmt="simple",
        disable_numparse=True,
    )
    reasons = dict.fromkeys(one.reason for one in reads if one.reason)
    notes = [f"Whether they were cold could not be checked: {reason}." for reason in reasons]
    if not reasons and any(found.is_cold is None for found in figures):
        notes = ["Whether they were cold could not be checked: no read was counted here."]
    if any(found.is_cold is False for found in figures):
        notes += ["Not all of it came from the device: these figures are partly the memory's."]
    rounds = max(len(one.rounds) for one in reads)
    return [
        *_told(medium),
        "",
        *table.splitlines(),
        f"Medians of {rounds} rounds with 95 % intervals; one thread, one read at a time.",
        *notes,
    ]


def size_of(count: int) -> str:
    """Bytes as people write them: "4 KiB"."""
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= one:
            return f"{count / one:.4g} {unit}"
    return f"{count} B"


def _told(medium: Medium, indent: str = "") -> list[str]:
    turning = {True: ", rotating", False: ", not rotating", None: ""}[medium.rotational]
    disks = (
        f" of {' and '.join(medium.disks)}" if medium.disks not in ((), (medium.device,)) else ""
    )
    return [
        f"{indent}{medium.file_system} on {medium.device}{disks}{turning}, "
        f"{size_of(medium.free_bytes)} of {size_of(medium.total_bytes)} free, "
        f"blocks of {size_of(medium.block_bytes)}; {','.join(medium.options)}",
        *(line for below in medium.below for line in _told(below, f"{indent}  kept in ")),
    ]


def _with_interval(found: Interval, scale: float) -> str:
    if found.low is None or found.high is None:
        return f"{scale * found.value:,.0f}"
    low, high = scale * found.low, scale * found.high
    return f"{scale * found.value:,.0f} ({low:,.0f} – {high:,.0f})"


def _from_device(one: ReadRound) -> float | None:
    """Which share of a round's bytes storage gave, at most 1; None where nobody counted.

    That nothing was counted says nothing where it is unknown what was in memory, or nothing was.
    """
    if one.device_bytes is None or not (one.device_bytes or one.resident_bytes):
        return None
    return min(1.0, one.device_bytes / one.bytes)


def _measured(files: Sequence[Path], size: int, rounds: int) -> tuple[Reads, ...]:
    return tuple(Reads.model_validate(one) for one in reading.measure(files, size, rounds))
