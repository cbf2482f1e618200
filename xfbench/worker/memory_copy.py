"""A script that measures how fast CPUs copy from the memory of a NUMA node to that of another.

`python -m xfbench.worker.memory_copy JOB` prints its result as JSON. `JOB` is a JSON object with
the parameters of `measure_copies`.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from xfbench.worker import placement


def measure_copies(
    cpus: Sequence[int],
    source: int | None,
    target: int | None,
    source_cpus: Sequence[int],
    size_bytes: int,
    rounds: int,
) -> Dict[str, Any]:
    """Copy from node `source` to node `target` with a thread for each of `cpus`.

    - `cpus`: CPUs of `target`.
    - `source_cpus`: CPUs of `source`; empty if it has none.
    - `source`, `target`: numbers of NUMA nodes. None: the system does not number them.
    - `size_bytes`: size of a copy.

    Return a dictionary: `seconds` has the duration of each round, and `shares` the shares of the
    source and of the target that are on their node; None if the system does not report them.
    """
    source_array, source_share = _allocate(source, source_cpus, size_bytes)
    target_array, target_share = _allocate(target, cpus, size_bytes)
    os.sched_setaffinity(0, cpus)
    bounds = np.linspace(0, len(source_array), len(cpus) + 1).astype(int)
    pieces = [slice(low, high) for low, high in zip(bounds, bounds[1:])]

    def copy_piece(piece: slice) -> None:
        np.copyto(target_array[piece], source_array[piece])

    seconds: List[float] = []
    with ThreadPoolExecutor(len(cpus)) as pool:
        for _ in range(1 + rounds):
            start = perf_counter()
            list(pool.map(copy_piece, pieces))
            seconds.append(perf_counter() - start)
    # The first round starts the threads.
    return {"seconds": seconds[1:], "shares": [source_share, target_share]}


def _allocate(
    node: int | None, cpus: Sequence[int], size_bytes: int
) -> Tuple[np.ndarray, float | None]:
    """Return an array in the memory of a NUMA node, and the share of it that is really there.

    If the system does not let a process choose a node, the array is written by a CPU of the node,
    because the system then takes the memory nearest to it.
    """
    error = placement.prefer_memory_of_node(node) if node is not None else None
    if error and cpus:
        os.sched_setaffinity(0, cpus)
    before = placement.anonymous_pages_by_node()
    array = np.empty(size_bytes // 8)
    array.fill(1.0)
    pages = {
        number: count - before.get(number, 0)
        for number, count in placement.anonymous_pages_by_node().items()
    }
    if node is None or not sum(pages.values()):
        return array, None
    return array, pages.get(node, 0) / sum(pages.values())


if __name__ == "__main__":
    print(json.dumps(measure_copies(**json.loads(sys.argv[1]))))
