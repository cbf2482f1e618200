"""The page cache before an epoch, and the bytes of the epoch that came from the device.

Use `Readings` around the epochs of a training loop. For an epoch that reads nothing else:

    before = page_cache.prepare(files, "cold")
    ... one epoch ...
    epoch = page_cache.account(before)

A cold epoch must read the set's bytes from the device, within 2 %. Before the epoch, a trial read
of a file shows whether the system counts reads. If it does not, `held` is None and `reason` says
why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from xfbench.worker import mounts, pages
from xfbench.worker.pages import ReadCounters, Residency
from xfbench.worker.protocol import Group

MODES = ("cold", "warm", "as-is")
TOLERANCE = 0.02  # relative to the set's bytes
_TRIAL_BYTES = 2**20  # bytes of a file for the trial read


@dataclass(frozen=True)
class EpochStart:
    """The state when an epoch is about to begin.

    `bytes` is the size of all files on the device. `share` is the part of `bytes` that the epoch
    reads. `uncounted` says why reads from the device cannot be counted here. It is "" if they can.
    """

    mode: str
    files: List[Path]
    bytes: int
    share: float
    resident: Residency
    uncounted: str
    counters: ReadCounters


class Readings:
    """Residency of a data set before each epoch, and bytes read from storage during the epoch.

    - `share`: the part of the set that a rank reads
    - `run_untimed`: runs the preparation outside of steps
    - `meet`: synchronizes the ranks
    - `report`: one entry per epoch, as `account` returns it
    """

    def __init__(
        self,
        files: Sequence[Path],
        mode: str,
        share: float,
        group: Group,
        run_untimed: Callable[[Callable[[], None]], Any],
        meet: Callable[[], None],
    ) -> None:
        self.files, self.mode, self.share, self.group = files, mode, share, group
        self.run_untimed, self.meet = run_untimed, meet
        self.report: List[Dict[str, Any]] = []

    def begin_epoch(self) -> None:
        if self.files:
            self.run_untimed(self._prepare_on_all_ranks)

    def end_epoch(self) -> None:
        if self.files:
            self.report.append(
                measure_epoch_reading(self.before, is_only_rank=self.group.size == 1)
            )

    def _prepare_on_all_ranks(self) -> None:
        """Prepare the cache on the first rank, then on the others, then evict once more on all."""
        rank = self.group.rank
        if self.group.size == 1 or self.mode == "as-is":
            self.before = prepare_cache(self.files, self.mode, self.share)
            return
        if rank == 0:
            self.before = prepare_cache(self.files, self.mode, self.share)
        self.meet()
        if rank > 0:
            self.before = prepare_cache(self.files, self.mode, self.share, skip_trial_read=True)
        self.meet()
        self.before = evict_again_if_cold(self.before)
        self.meet()


def prepare_cache(
    files: Sequence[Path], mode: str, share: float = 1.0, *, skip_trial_read: bool = False
) -> EpochStart:
    """Bring the page cache to `mode`: "cold", "warm", or "as-is", which changes nothing.

    Call this function right before an epoch. If a node has several ranks:

    1. One rank calls it.
    2. The other ranks call it with `tried=True`, which skips the trial read.
    3. All ranks call `evict_again`.

    `share` is the part of the files' bytes that this epoch reads. Raises ValueError for another
    mode and OSError for an unreadable file.
    """
    if mode not in MODES:
        raise ValueError(f"the page cache can be {', '.join(MODES)}, not {mode!r}")
    files = list(files)
    uncounted = "" if mode == "as-is" or skip_trial_read else _trial_read_failure(files)
    act = {"cold": pages.evict, "warm": pages.read_into_memory, "as-is": pages.residency}[mode]
    residency = act(files)
    counters = pages.bytes_read_so_far(files)
    return EpochStart(mode, files, pages.stored_bytes(files), share, residency, uncounted, counters)


def evict_again_if_cold(before: EpochStart) -> EpochStart:
    """Evict the files again after all ranks have called `prepare`.

    Each rank must do this, because mapped pages can only be dropped by the rank that maps them.
    """
    if before.mode != "cold":
        return before
    residency = pages.evict(before.files)
    return replace(before, resident=residency, counters=pages.bytes_read_so_far(before.files))


def measure_epoch_reading(epoch_start: EpochStart, *, is_only_rank: bool = True) -> Dict[str, Any]:
    """Return what one epoch of one rank has read since `prepare`, as a record's `reading`.

    - `device_bytes`: the bytes that this process and its children read from storage. None if they
      cannot be counted.
    - `held`: whether a cold epoch read the set's bytes, or a warm epoch read none, within 2 % of
      the set's bytes. None if the mode requires nothing, or if it could not be checked
      (`reason`).

    Other files that the process reads, such as libraries, are counted too. Therefore an excess
    cannot be checked. If there are several ranks (`alone` is False), a rank may find in memory what
    another rank has read. Then `merge_readings` judges the sum of all ranks instead.
    """
    read = pages.bytes_read_so_far(epoch_start.files).since(epoch_start.counters)
    device_bytes, reason = _device_bytes_or_reason(epoch_start, read.process)
    reading = {
        "page_cache": epoch_start.mode,
        "bytes": epoch_start.bytes,
        "share": epoch_start.share,
        "resident_before": epoch_start.resident.resident_bytes,
        "resident_of": epoch_start.resident.bytes,
        "device_bytes": device_bytes,
        "device_bytes_of_all": read.device,
        "reason": reason,
    }
    left_bytes = epoch_start.resident.resident_bytes or 0
    if epoch_start.mode == "cold" and left_bytes > TOLERANCE * epoch_start.resident.bytes:
        why = f"{left_bytes} bytes could not be evicted: another process has mapped or written them"
        return {**reading, "reason": why, "held": False}
    if not is_only_rank:
        return {**reading, "held": None}
    verdict = is_cache_state_held(
        epoch_start.mode, epoch_start.bytes, device_bytes, epoch_start.share
    )
    if (
        verdict is False
        and 0 < (device_bytes or 0) < epoch_start.bytes
        and _is_compressed(epoch_start.files)
    ):
        return {**reading, "reason": "the file system compresses its files", "held": None}
    if verdict is None and device_bytes is not None and epoch_start.mode != "as-is":
        return {
            **reading,
            "reason": _surplus_message(epoch_start.mode, epoch_start.bytes, device_bytes),
            "held": None,
        }
    return {**reading, "held": verdict}


def judge_readings_of_all_ranks(rank_readings: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the readings of several ranks on a node, with one verdict on their sum."""
    counted = [part["device_bytes"] for part in rank_readings]
    if None in counted or any(part["reason"] for part in rank_readings):
        return list(rank_readings)
    mode, size, total = rank_readings[0]["page_cache"], rank_readings[0]["bytes"], sum(counted)
    verdict = is_cache_state_held(
        mode, size, total, min(1.0, sum(part["share"] for part in rank_readings))
    )
    unclear = verdict is None and mode != "as-is"
    reason = _surplus_message(mode, size, total) if unclear else None
    return [{**part, "held": verdict, "reason": reason} for part in rank_readings]


def _surplus_message(mode: str, size: int, device_bytes: int) -> str:
    more = device_bytes - (size if mode == "cold" else 0)
    return f"{more} more bytes came from the device: reads of libraries, for example, count too"


def is_cache_state_held(
    mode: str, bytes: int, device_bytes: int | None, share: float = 1.0
) -> bool | None:
    """Return whether the bytes from the device, summed over ranks, are what the mode requires.

    A cold epoch reads at least the `share` of the set's bytes, and at most all of them, because
    bytes between the images are read too. The result is None in these cases:

    - There is no count, or the mode requires nothing.
    - More bytes came than the set has.
    - A warm epoch read some bytes but not all. These bytes may belong to other files.
    """
    if mode == "as-is" or device_bytes is None:
        return None
    slack = TOLERANCE * bytes
    if device_bytes > bytes + slack:  # includes other files
        return None
    if mode == "warm":  # a count in between may be a part of the set, or other files
        return True if device_bytes <= slack else False if device_bytes >= bytes - slack else None
    return device_bytes >= share * bytes - slack


def _is_compressed(files: Sequence[Path]) -> bool:
    folders = {path.parent for path in files}
    return any(
        mount.compresses for folder in folders for mount in [mounts.mount_of(folder)] if mount
    )


def _device_bytes_or_reason(
    before: EpochStart, counted: int | None
) -> tuple[int | None, str | None]:
    """Return (bytes from storage, None). If the count is meaningless, return (None, reason)."""
    if before.uncounted:
        return None, before.uncounted
    if counted is None:
        return None, "the system does not count what a process reads from storage"
    there = before.resident.resident_bytes
    if before.mode == "as-is" and not counted and there != before.resident.bytes:
        return None, before.resident.reason or "no read was counted, but not all was in memory"
    return counted, None


def _trial_read_failure(files: Sequence[Path]) -> str:
    """Return why the process's counter does not see reads of these files. "" if it sees them.

    As a trial, this function evicts the largest file and reads the beginning of that file.
    """
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    if largest is None or not largest.stat().st_size:
        return "there is nothing to read"
    residency = pages.evict([largest])
    if residency.resident_bytes:
        return (
            f"{residency.resident_bytes} of {residency.bytes} bytes of a file could not be evicted"
        )
    before = pages.bytes_read_so_far([largest])
    with largest.open("rb", buffering=0) as file:
        count = len(file.read(_TRIAL_BYTES))
    counted = pages.bytes_read_so_far([largest]).since(before).process
    if counted is None:
        return "the system does not count what a process reads from storage"
    stored = min(count, pages.stored_bytes([largest]))
    if counted < (1 if _is_compressed([largest]) else (1 - TOLERANCE) * stored):
        return (
            residency.reason or f"of {count} bytes that were not in memory, {counted} were counted"
        )
    return ""
