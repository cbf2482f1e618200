"""How fast a medium gives its bytes: one thread, one read after another, from no memory.

The study's `dd` is "sequential"; the others are what shuffled samples ask for. This is the
third place that reads a clock: around plain reads, and nothing else.
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
ROUNDS = 6  # so many that the least and the most are a 95 % interval of the median
SECONDS = 2.0  # that a round takes at most
_MAX_FREE_SHARE = 0.5  # of the free space, at most, is written
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
    """So many bytes in so many reads took so long.

    `resident_bytes` of the files were in memory before, and `device_bytes` counted as read from
    storage meanwhile. None, of either: unknown.
    """

    seconds: float
    bytes: int
    operations: int
    resident_bytes: int | None
    device_bytes: int | None


class NotEnoughData(Exception):
    """There is too little to read, or no room to write it. The message says which."""


@contextlib.contextmanager
def temporary_file(folder: Path, size: int = SIZE) -> Iterator[Path]:
    """A file of `size` random bytes in `folder`, gone when the block ends, however it ends.

    It has no name there: what is given leads to it as long as this process has it open. Less is
    written where half of the free space is less. Raises TooLittle where that is none, OSError
    where nothing may be written.
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
    """Files of a data set, drawn by a fixed seed, until they have `size` bytes together.

    Raises TooLittle where they have none.
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


def measure(
    files: Sequence[Path],
    size: int = SIZE,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    patterns: Sequence[Pattern] = PATTERNS,
) -> List[Dict[str, Any]]:
    """Rounds of each pattern, one pattern after the other in each round; JSON values.

    Before each the files are evicted, and what is left of them in memory is kept with it. A
    round ends after `size` bytes or `seconds`; none reads a block twice. Each entry: pattern,
    block_bytes, random, reason (why it is not known what was in memory), rounds.
    """
    rounds_by_pattern: List[List[Round]] = [[] for _ in patterns]
    sizes = [path.stat().st_size for path in files]
    reason = ""
    for number in range(rounds):
        for pattern, so_far in zip(patterns, rounds_by_pattern):
            reads = _plan_reads(sizes, pattern, size, number)
            residency = pages.evict(files)
            reason = residency.reason
            so_far.append(_run_round(files, reads, pattern, seconds, residency.resident_bytes))
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


# Of one round: which file, where, how many bytes.
_Reads = List[Tuple[int, int, int]]


def _plan_reads(of_files: Sequence[int], pattern: Pattern, size: int, seed: int) -> _Reads:
    """What is read, in order: blocks of files of these sizes that come to `size` bytes at most."""
    block, sizes = pattern.block_bytes, np.asarray(of_files, np.int64)
    until = np.cumsum(-(-sizes // block))  # blocks of the files up to here
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


def _run_round(
    files: Sequence[Path],
    reads: _Reads,
    pattern: Pattern,
    seconds: float,
    resident_bytes: int | None,
) -> Round:
    """One round; opening a file counts where it is another than the last one's."""
    buffer = memoryview(bytearray(pattern.block_bytes))
    advice = os.POSIX_FADV_RANDOM if pattern.random else os.POSIX_FADV_NORMAL
    counters = pages.read_counters(files)
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
    counted = pages.read_counters(files).since(counters)
    return Round(passed, total, operations, resident_bytes, counted.process)
