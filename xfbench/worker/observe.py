"""What really happened in this process: threads that worked, affinity, libraries, memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

_TELLING = ("blas", "mkl", "dnnl", "onednn", "gomp", "iomp", "libomp", "cudnn", "cublas", "nccl")


def thread_ticks() -> dict[int, int]:
    """CPU time of each thread of this process so far, by thread id, in clock ticks (proc(5))."""
    ticks = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # the thread has ended since
            continue
        ticks[int(task.name)] = int(fields[11]) + int(fields[12])
    return ticks


def working_threads(before: dict[int, int], after: dict[int, int]) -> int:
    """How many threads worked between two readings: a tenth or more of the busiest's time."""
    spent = [ticks - before.get(thread, 0) for thread, ticks in after.items()]
    busiest = max(spent, default=0)
    return sum(1 for ticks in spent if ticks >= max(1, busiest / 10))


def affinity() -> list[int]:
    """The CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


def mapped(*parts: str) -> list[str]:
    """Mapped shared libraries with one of `parts` in their file name, each as "folder/name".

    The folder tells builds of one library apart; the rest of the path is nobody's business.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {Path("/" + line.partition("/")[2]) for line in lines if ".so" in line}
    return sorted(
        f"{path.parent.name}/{path.name}" for path in paths if any(p in path.name for p in parts)
    )


def libraries() -> list[str]:
    """File names of the mapped libraries that decide speed (BLAS, oneDNN, OpenMP, CUDA)."""
    return sorted({name.rpartition("/")[2] for name in mapped(*_TELLING)})


def peak_rss_bytes() -> int:
    """The most memory this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def packages() -> dict[str, str]:
    """Distributions installed in this interpreter, name to version."""
    from importlib import metadata

    found: dict[str, Any] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found[name.lower().replace("_", "-")] = distribution.version
    return dict(sorted(found.items()))
