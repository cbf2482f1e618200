"""The read speed of a storage medium, measured by one thread with one read at a time.

The files are evicted from memory before they are read. The pattern "sequential" reads as `dd` does
in published measurements. The "random" patterns resemble reads of shuffled samples.
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
ROUNDS = 6  # minimum and maximum of six rounds are a 95 % interval of the median
SECONDS = 2.0  # maximum duration of a round
_MAX_FREE_SHARE = 0.5  # maximum share of the free space that the temporary file takes
_WRITE_BYTES = 8 * 2**20
_MAX_READS = 2**20


@dataclass(frozen=True)
class Pattern:
    """The order in which blocks of files are read, and the size of a block.

    - `name`: "sequential" or "random".
    - `block_bytes`: the size of a block in bytes.
    - `random`: whether blocks are read in random order.
    """

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
    """The result of one round of reads.

    - `seconds`: the duration of the round.
    - `bytes`: the number of bytes that were read.
    - `operations`: the number of reads.
    - `resident_bytes`: the files' bytes in memory before the round; None if unknown.
    - `device_bytes`: the bytes that came from storage during the round; None if unknown.
    """

    seconds: float
    bytes: int
    operations: int
    resident_bytes: int | None
    device_bytes: int | None


class NotEnoughData(Exception):
    """There is nothing to read, or no room for a file to read. The message says which."""


@contextlib.contextmanager
def temporary_file(folder: Path, size: int = SIZE) -> Iterator[Path]:
    """Create a file of `size` random bytes in `folder`, and yield a path that opens it.

    The file has no name in `folder`, so the system deletes it when the context or the process ends.
    The yielded path is in /proc/self/fd and is valid until then.

    If `size` exceeds half of the free space, the file is smaller. Raises NotEnoughData if
    less than 8 MiB could be written. Raises OSError if the file cannot be written.
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
    """Draw files at random with a fixed seed, until they have `size` bytes together.

    If `files` have fewer bytes, all are returned. Raises NotEnoughData if all are empty.
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
    """Measure the read speed of `files` with each pattern. Return one dictionary for each pattern.

    - `size`: the maximum number of bytes in a round.
    - `rounds`: the number of rounds for each pattern. Rounds alternate between the patterns.
    - `seconds`: the maximum duration of a round.

    Before each round, the files are evicted from memory. A round reads no block twice. The values
    of a result are JSON values:

    - "pattern", "block_bytes", "random": the pattern's fields.
    - "reason": why the bytes in memory before a round are unknown, or None.
    - "rounds": the fields of each `Round`.
    """
    rounds_by_pattern: List[List[Round]] = [[] for _ in patterns]
    sizes = [path.stat().st_size for path in files]
    reason = ""
    for number in range(rounds):
        for pattern, so_far in zip(patterns, rounds_by_pattern):
            reads = _plan_reads(sizes, pattern, size, number)
            residency = pages.evict(files)
            reason = residency.reason
            so_far.append(
                _time_reads_one_by_one(files, reads, pattern, seconds, residency.resident_bytes)
            )
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


# The reads of a round: index of the file, offset in bytes, length in bytes.
_Reads = List[Tuple[int, int, int]]


def _plan_reads(file_sizes: Sequence[int], pattern: Pattern, size: int, seed: int) -> _Reads:
    """Return the reads of a round in order: blocks of the files, at most `size` bytes in all.

    If `size` is smaller than a block, one block is read.
    """
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


def _time_reads_one_by_one(
    files: Sequence[Path],
    reads: _Reads,
    pattern: Pattern,
    seconds: float,
    resident_bytes: int | None,
) -> Round:
    """Do the reads of one round and time them. The time includes opening the files."""
    buffer = memoryview(bytearray(pattern.block_bytes))
    advice = os.POSIX_FADV_RANDOM if pattern.random else os.POSIX_FADV_NORMAL
    counters = pages.bytes_read_by_process_and_devices(files)
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
    counted = pages.bytes_read_by_process_and_devices(files).since(counters)
    return Round(passed, total, operations, resident_bytes, counted.process)
