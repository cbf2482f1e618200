"""The page cache before an epoch, and the bytes that the epoch reads from the device.

Use `Readings` around the epochs of a training loop. For a single epoch of one rank:

    before = page_cache.prepare_cache(files, "cold")
    ... one epoch ...
    reading = page_cache.measure_epoch_reading(before)

The field `held` of the reading says whether the epoch read as many bytes from the device as the
mode requires. For example, a cold epoch must read all bytes of the data set, within 2 %.

Before the epoch, a trial read of the largest file shows whether the system counts reads. If it does
not, `held` is None, and the field `reason` says why.
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
_TRIAL_BYTES = 2**20  # size of the trial read


@dataclass(frozen=True)
class EpochStart:
    """The state when an epoch is about to begin.

    - `mode`: the required state of the page cache, one of `MODES`.
    - `bytes`: the size of all files on the device.
    - `share`: the part of `bytes` that the epoch reads, from 0 to 1.
    - `resident`: the files' bytes in memory before the epoch.
    - `uncounted`: why reads from the device cannot be counted; "" if they can be counted.
    - `counters`: the counters of bytes read from storage when the epoch begins.
    """

    mode: str
    files: List[Path]
    bytes: int
    share: float
    resident: Residency
    uncounted: str
    counters: ReadCounters


class Readings:
    """The readings of a data set: residency before each epoch, and bytes read during the epoch.

    - `files`: the files of the data set. If there are none, the methods do nothing.
    - `mode`: the required state of the page cache, one of `MODES`.
    - `share`: the part of the set that a rank reads, from 0 to 1.
    - `run_untimed`: calls a function outside of timed steps.
    - `meet`: waits until all ranks have called it.
    - `report`: one result of `measure_epoch_reading` for each epoch.
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
        """Prepare the page cache on all ranks."""
        if self.files:
            self.run_untimed(self._prepare_on_all_ranks)

    def append_rank_reading_of_epoch(self) -> None:
        """Add the reading of the epoch to `report`."""
        if self.files:
            self.report.append(
                measure_epoch_reading(self.before, is_only_rank=self.group.size == 1)
            )

    def _prepare_on_all_ranks(self) -> None:
        """Prepare the page cache on the first rank, then on the other ranks.

        If the mode is "cold", all ranks then evict the files again (see `evict_again_if_cold`).
        """
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
    """Bring the page cache to the state `mode`, and return the state before the epoch.

    - `mode`: "cold" evicts the files, "warm" reads them into memory, "as-is" changes nothing.
    - `share`: the part of the files' bytes that this epoch reads, from 0 to 1.
    - `skip_trial_read`: skip the trial read, which shows whether the system counts reads.

    Call this function right before an epoch. If a node has several ranks:

    1. One rank calls this function.
    2. The other ranks call it with `skip_trial_read=True`.
    3. All ranks call `evict_again_if_cold`.

    Raises ValueError for an unknown mode and OSError for an unreadable file.
    """
    if mode not in MODES:
        raise ValueError(f"the page cache can be {', '.join(MODES)}, not {mode!r}")
    files = list(files)
    uncounted = "" if mode == "as-is" or skip_trial_read else _trial_read_failure(files)
    act = {"cold": pages.evict, "warm": pages.read_into_memory, "as-is": pages.residency}[mode]
    residency = act(files)
    counters = pages.bytes_read_by_process_and_devices(files)
    return EpochStart(mode, files, pages.stored_bytes(files), share, residency, uncounted, counters)


def evict_again_if_cold(before: EpochStart) -> EpochStart:
    """If the mode is "cold", evict the files again. Return the updated state.

    Each rank calls this function after all ranks have called `prepare_cache`. Only the rank that
    maps a page can drop it.
    """
    if before.mode != "cold":
        return before
    residency = pages.evict(before.files)
    return replace(
        before, resident=residency, counters=pages.bytes_read_by_process_and_devices(before.files)
    )


def measure_epoch_reading(epoch_start: EpochStart, *, is_only_rank: bool = True) -> Dict[str, Any]:
    """Return what this rank has read since `epoch_start`, as an epoch's reading in a record.

    The reading has these fields, among others:

    - `device_bytes`: the bytes that this process and its descendants have read from storage. None
      if they cannot be counted.
    - `held`: whether the bytes from storage are what the mode requires (`is_cache_state_held`).
      None if the mode requires nothing, or if its requirement cannot be checked.
    - `reason`: why `device_bytes` or `held` is unknown, or why eviction failed. Otherwise None.

    If there are several ranks (`is_only_rank` is false), a rank may find in memory what another
    rank has read. Then `held` is False if eviction failed, and otherwise None:
    `judge_epoch_and_mark_rank_readings` judges the sum over the ranks instead.
    """
    read = pages.bytes_read_by_process_and_devices(epoch_start.files).since(epoch_start.counters)
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


def judge_epoch_and_mark_rank_readings(
    rank_readings: Sequence[Dict[str, Any]],
) -> List[Dict[str, Any]]:
    """Return the readings of all ranks in one epoch, with a common `held` and `reason`.

    `held` is the result of `is_cache_state_held` for the sums of `device_bytes` and `share` over
    the ranks. If a rank has no `device_bytes` or has a `reason`, the readings are returned
    unchanged.
    """
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
    return f"{more} bytes too many came from the device: reads of libraries, for example, count too"


def is_cache_state_held(
    mode: str, bytes: int, device_bytes: int | None, share: float = 1.0
) -> bool | None:
    """Return whether the bytes that came from the device are what the mode requires, within 2 %.

    - `bytes`: the size of the data set on the device.
    - `device_bytes`: the bytes that all ranks together read from the device. None if unknown.
    - `share`: the part of the data set that all ranks together read, from 0 to 1.

    A cold epoch must read at least `share` of the set's bytes. A warm epoch must read none.
    The result is None in these cases:

    - `device_bytes` is None, or the mode is "as-is".
    - More bytes came from the device than the set has, so other files were read too.
    - A warm epoch read some bytes but not all of the set. These bytes may belong to other files.
    """
    if mode == "as-is" or device_bytes is None:
        return None
    slack = TOLERANCE * bytes
    if device_bytes > bytes + slack:
        return None
    if mode == "warm":
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
    """Return (`counted`, None), or (None, reason) if the count of bytes is not reliable."""
    if before.uncounted:
        return None, before.uncounted
    if counted is None:
        return None, "the system does not count what a process reads from storage"
    there = before.resident.resident_bytes
    if before.mode == "as-is" and not counted and there != before.resident.bytes:
        return None, before.resident.reason or (
            "no read was counted, although not all bytes were in memory"
        )
    return counted, None


def _trial_read_failure(files: Sequence[Path]) -> str:
    """Return why this process's read counter misses reads of `files`, or "" if it counts them.

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
    before = pages.bytes_read_by_process_and_devices([largest])
    with largest.open("rb", buffering=0) as file:
        count = len(file.read(_TRIAL_BYTES))
    counted = pages.bytes_read_by_process_and_devices([largest]).since(before).process
    if counted is None:
        return "the system does not count what a process reads from storage"
    stored = min(count, pages.stored_bytes([largest]))
    if counted < (1 if _is_compressed([largest]) else (1 - TOLERANCE) * stored):
        return residency.reason or f"the system counted {counted} of {count} bytes read"
    return ""
