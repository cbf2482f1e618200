"""The bytes of files in memory: count them, evict them, read them into memory.

Files are evicted one by one (posix_fadvise), which needs no root and does not affect other files.
The kernel reports which bytes remain in memory (mincore). If it hides them, the result has the
reason instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Tuple

import numpy as np

from xfbench.worker import mounts, observe
from xfbench.worker.system_files import read_system_file

PAGE = mmap.PAGESIZE
_WINDOW = 2**30  # bytes of a file that are mapped at a time
_BLOCK = 2**20  # bytes per read when warming
_TRIES = 3
_SECTOR = 512  # bytes, for every device (Documentation/block/stat.rst)
_CAP_FOWNER = 1 << 3
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_DONTNEED = 4  # MADV_DONTNEED


@dataclass(frozen=True)
class Residency:
    """The part of some files that is in memory.

    - `resident_bytes`: the bytes in memory; None if unknown.
    - `bytes`: the size of the files in whole pages.
    - `reason`: why `resident_bytes` is unknown; "" if it is known.
    """

    resident_bytes: int | None
    bytes: int
    reason: str = ""


@dataclass(frozen=True)
class ReadCounters:
    """Bytes that were read from storage. A value is None if the system does not count it.

    - `process`: bytes that this process and its descendants have read.
    - `device`: bytes that any process has read from the block devices that store the files.
    """

    process: int | None
    device: int | None

    def since(self, earlier: ReadCounters) -> ReadCounters:
        """Return the bytes that were read after `earlier`."""
        return ReadCounters(
            _difference(earlier.process, self.process), _difference(earlier.device, self.device)
        )


def files_under(folder: Path) -> List[Path]:
    """Return all regular files in `folder` and its subfolders. If `folder` is a file, return it.

    The files of each folder are sorted by name. A symbolic link to a file counts as the file. A
    file with several names occurs once.
    """
    if folder.is_file():
        return [folder]
    unique_files: Dict[Tuple[int, int], Path] = {}
    for above, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(above, name)
            if path.is_file():
                status = path.stat()
                unique_files.setdefault((status.st_dev, status.st_ino), path)
    return list(unique_files.values())


def stored_bytes(files: Iterable[Path]) -> int:
    """Return how many bytes storage delivers if all files are read.

    Whole pages are read. Holes in a file are not stored, so they do not count.
    """
    total = 0
    for path in files:
        status = path.stat()
        allocated = status.st_blocks * 512 or status.st_size
        total += min(_round_up_to_pages(status.st_size), _round_up_to_pages(allocated))
    return total


def evict(files: Iterable[Path]) -> Residency:
    """Evict the files from memory and return how much of them remains in memory.

    - Written data is flushed first.
    - This process's mappings stay valid. Their pages are read again on access.
    - Pages that other processes have mapped remain. Therefore every rank must call this function,
      and call it again after all ranks have called it.
    - If pages remain and this process has permission, all clean pages of the machine are dropped.

    Raises OSError for an unreadable file.
    """
    files = list(files)
    for path in files:
        with _open_descriptor(path) as descriptor, contextlib.suppress(OSError):
            os.fsync(descriptor)  # only clean pages can be dropped
    remaining = Residency(None, 0)
    for _ in range(_TRIES):
        _drop_mapped_pages(files)
        for path in files:
            with _open_descriptor(path) as descriptor:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        remaining = residency(files)
        if not remaining.resident_bytes:
            return remaining
    with contextlib.suppress(OSError):  # needs root and affects all processes: the last resort
        _DROP_CACHES.write_text("1")
        remaining = residency(files)
    return remaining


def read_into_memory(files: Iterable[Path]) -> Residency:
    """Read the files completely, and return how much of them is in memory afterwards."""
    files = list(files)
    buffer = memoryview(bytearray(_BLOCK))
    for path in files:
        with _open_descriptor(path) as descriptor:
            while os.readv(descriptor, [buffer]):
                pass
    return residency(files)


def residency(files: Iterable[Path]) -> Residency:
    """Return how much of the files is in memory (mincore(2)). This reads no byte of the files."""
    inside = total = 0
    reason = ""
    reason_by_device: Dict[int, str] = {}
    for path in files:
        with _open_descriptor(path) as descriptor:
            status = os.fstat(descriptor)
            total += _round_up_to_pages(status.st_size)
            if status.st_dev not in reason_by_device:
                reason_by_device[status.st_dev] = _memory_file_system_reason(path)
            reason = reason or reason_by_device[status.st_dev] or _mincore_refusal(path, status)
            if not reason:
                inside += PAGE * _count_resident_pages(descriptor, status.st_size)
    return Residency(None if reason else inside, total, reason)


def bytes_read_by_process_and_devices(files: Iterable[Path] = ()) -> ReadCounters:
    """Return the counters of bytes read from storage.

    `files` select the block devices whose reads are counted. Without files, `device` is None.
    """
    folders = {path.parent for path in files}
    below = sorted(
        {device for folder in folders for device in mounts.mounted_block_device_ids(folder)}
    )
    return ReadCounters(_count_bytes_read_with_descendants(), _count_bytes_read_from_devices(below))


def _count_bytes_read_with_descendants() -> int | None:
    """Return the sum of read_bytes (proc(5)) of this process and all of its descendants.

    Ended children count too. Returns None if the system does not report read_bytes.
    """
    own_bytes = _count_bytes_read_by_process(os.getpid())
    if own_bytes is None:
        return None
    return own_bytes + sum(
        _count_bytes_read_by_process(process) or 0 for process in observe.descendant_pids()
    )


def _count_bytes_read_by_process(pid: int) -> int | None:
    lines = (read_system_file(Path("/proc", str(pid), "io")) or "").splitlines()
    return next((int(ln.split()[1]) for ln in lines if ln.startswith("read_bytes:")), None)


def _count_bytes_read_from_devices(devices: List[str]) -> int | None:
    counted = [
        (read_system_file(Path("/sys/dev/block", device, "stat")) or "").split()
        for device in devices
    ]
    if not counted or not all(counted):
        return None
    return sum(_SECTOR * int(fields[2]) for fields in counted)


def _memory_file_system_reason(path: Path) -> str:
    """Return why the file is on no device. "" if its file system is not known to be in memory."""
    mount = mounts.mount_of(path)
    if mount and mount.file_system in mounts.MEMORY:
        return f"{mount.file_system} keeps files in memory: there is no device to read them from"
    return ""


def _mincore_refusal(path: Path, status: os.stat_result) -> str:
    """Return why the kernel hides the file's residency, or "" if the kernel reports it.

    The user must own the file, be able to write it, or have the capability CAP_FOWNER. Since Linux
    5.2, the kernel tells all other users that all pages are in memory.
    """
    if status.st_uid == os.geteuid() or os.access(path, os.W_OK) or _has_fowner_capability():
        return ""
    return "the kernel reports residency only to a file's owner and to users who may write it"


def _has_fowner_capability() -> bool:
    lines = (read_system_file(Path("/proc/self/status")) or "").split("\n")
    allowed = next((int(ln.split()[1], 16) for ln in lines if ln.startswith("CapEff:")), 0)
    return bool(allowed & _CAP_FOWNER)


def _count_resident_pages(descriptor: int, size: int) -> int:
    """Return how many pages of an open file with `size` bytes are in memory.

    Raises OSError if the kernel cannot report them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    inside = 0
    for start in range(0, size, _WINDOW):
        length = min(_WINDOW, size - start)
        vector = np.zeros(_round_up_to_pages(length) // PAGE, np.uint8)
        with mmap.mmap(
            descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=start
        ) as mapping:
            address = np.frombuffer(mapping, np.uint8).ctypes.data
            failed = libc.mincore(
                ctypes.c_void_p(address),
                ctypes.c_size_t(length),
                ctypes.c_void_p(vector.ctypes.data),
            )
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        inside += int(np.count_nonzero(vector & 1))
    return inside


def _drop_mapped_pages(files: List[Path]) -> None:
    """Release the pages of this process's shared mappings of `files`. The mappings stay valid.

    A mapped page cannot be evicted. Pages of private mappings are not released, because they may
    contain changes.
    """
    inodes = {path.stat().st_ino for path in files}
    libc = ctypes.CDLL(None)
    for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).split("\n"):
        fields = line.split(" ", 5)
        if len(fields) < 6 or fields[1][3:] != "s" or int(fields[4]) not in inodes:
            continue
        first, last = (int(part, 16) for part in fields[0].split("-"))
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DONTNEED)


@contextlib.contextmanager
def _open_descriptor(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _round_up_to_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
