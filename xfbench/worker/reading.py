"""Measure how fast a medium delivers bytes: one thread, one read at a time, nothing in memory.

"sequential" is the published `dd`; the other patterns resemble reads of shuffled samples. This
is the third module that reads a clock, only around plain reads.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np

from xfbench.worker import pages

SIZE = 256 * 2**20  # bytes that a sequential round reads
ROUNDS = 6  # minimum and maximum of six are a 95 % interval of the median
SECONDS = 2.0  # limit of a round
_MAX_FREE_SHARE = 0.5  # of the free space, for the file that is written
_WRITE_BYTES = 8 * 2**20
_MAX_READS = 2**20


@dataclass(frozen=True)
class Pattern:
    """The order and block size, in bytes, in which files are read."""

    name: str
    block_bytes: int
    random: bool


PATTERNS = (
    Pattern("sequential", 2**20, False),
    Pattern("random", 128 * 2**10, True),
    Pattern("random", 4 * 2**10, True),
)


@dataclass(frozen=True)
class Round:
    """The bytes, reads and seconds of a round.

    `resident_bytes` of the files were in memory before. `device_bytes` were counted as read from
    storage during the round. None means unknown.
    """

    seconds: float
    bytes: int
    operations: int
    resident_bytes: int | None
    device_bytes: int | None


class NotEnoughData(Exception):
    """There is too little to read, or no room to write it; the message says which."""


@contextlib.contextmanager
def temporary_file(folder: Path, size: int = SIZE) -> Iterator[Path]:
    """Provide a file of `size` random bytes in `folder`, which is removed in any case.

    It has no name in the folder: the path leads to it while this process has it open. At most half
    of the free space is used. Raises NotEnoughData if that is too little, OSError if nothing may
    be written.
    """
    space = os.statvfs(folder)
    size = (
        min(size, int(_MAX_FREE_SHARE * space.f_bavail * space.f_frsize))
        // _WRITE_BYTES
        * _WRITE_BYTES
    )
    if not size:
        raise NotEnoughData(f"less than {_WRITE_BYTES >> 20} MiB could be written")
    random = np.random.RandomState(0)
    with tempfile.TemporaryFile(dir=str(folder), buffering=0) as file:
        for _ in range(size // _WRITE_BYTES):
            rest = memoryview(random.bytes(_WRITE_BYTES))
            while rest:
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
        yield Path("/proc/self/fd", str(file.fileno()))


def draw_files(files: Sequence[Path], size: int = SIZE) -> List[Path]:
    """Draw files of a data set with a fixed seed, until they have `size` bytes together.

    Raises NotEnoughData if they are empty.
    """
    chosen: List[Path] = []
    remaining_bytes = size
    for index in np.random.RandomState(0).permutation(len(files)):
        if remaining_bytes <= 0:
            break
        chosen.append(files[index])
        remaining_bytes -= files[index].stat().st_size
    if remaining_bytes == size:
        raise NotEnoughData("the files are empty")
    return chosen


def measure_read_speed(
    files: Sequence[Path],
    size: int = SIZE,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    patterns: Sequence[Pattern] = PATTERNS,
) -> List[Dict[str, Any]]:
    """Measure rounds of all patterns, alternating between the patterns; return JSON values.

    Before each round the files are evicted, and what stays in memory is recorded. A round ends
    after `size` bytes or `seconds`; it reads no block twice. Each entry has pattern, block_bytes,
    random, reason (why residency is unknown) and rounds.
    """
    rounds_by_pattern: List[List[Round]] = [[] for _ in patterns]
    sizes = [path.stat().st_size for path in files]
    reason = ""
    for number in range(rounds):
        for pattern, so_far in zip(patterns, rounds_by_pattern):
            reads = _plan_reads(sizes, pattern, size, number)
            residency = pages.evict(files)
            reason = residency.reason
            so_far.append(_time_reads(files, reads, pattern, seconds, residency.resident_bytes))
    return [
        {
            "pattern": pattern.name,
            "block_bytes": pattern.block_bytes,
            "random": pattern.random,
            "reason": reason or None,
            "rounds": [asdict(round_result) for round_result in done],
        }
        for pattern, done in zip(patterns, rounds_by_pattern)
    ]


# The reads of a round: file, offset, bytes.
_Reads = List[Tuple[int, int, int]]


def _plan_reads(file_sizes: Sequence[int], pattern: Pattern, size: int, seed: int) -> _Reads:
    """Return the reads in order: blocks of files with these sizes, at most `size` bytes."""
    block, sizes = pattern.block_bytes, np.asarray(file_sizes, np.int64)
    until = np.cumsum(-(-sizes // block))  # cumulative number of blocks
    count = int(min(until[-1], max(1, size // block), _MAX_READS))
    if pattern.random:
        random = np.random.RandomState(seed)
        drawn = np.unique(random.randint(0, until[-1], 2 * count))
        chosen = random.permutation(drawn)[:count]
    else:
        chosen = np.arange(count)
    of = np.searchsorted(until, chosen, side="right")
    starts = (chosen - (until[of] - -(-sizes[of] // block))) * block
    lengths = np.minimum(block, sizes[of] - starts)
    return list(zip(of.tolist(), starts.tolist(), lengths.tolist()))


def _time_reads(
    files: Sequence[Path],
    reads: _Reads,
    pattern: Pattern,
    seconds: float,
    resident_bytes: int | None,
) -> Round:
    """Read one round; opening a file counts if it differs from the previous one."""
    buffer = memoryview(bytearray(pattern.block_bytes))
    advice = os.POSIX_FADV_RANDOM if pattern.random else os.POSIX_FADV_NORMAL
    counters = pages.bytes_read_so_far(files)
    total = operations = 0
    start = perf_counter()
    for index, file_reads in itertools.groupby(reads, key=lambda read: read[0]):
        descriptor = os.open(files[index], os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, advice)
            for _, offset, length in file_reads:
                total += os.preadv(descriptor, [buffer[:length]], offset)
                operations += 1
                if perf_counter() - start >= seconds:
                    break
        finally:
            os.close(descriptor)
        if perf_counter() - start >= seconds:
            break
    passed = perf_counter() - start
    counted = pages.bytes_read_so_far(files).since(counters)
    return Round(passed, total, operations, resident_bytes, counted.process)
