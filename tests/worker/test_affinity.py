"""How ranks and threads are laid out over cores, and that threads started later stay there."""

import os
import subprocess
import sys

import pytest

from xfbench.worker import affinity

EIGHT_CORES = [[core, core + 8] for core in range(8)]  # two hardware threads each


@pytest.mark.parametrize(
    ("ranks", "threads", "reserved", "expected"),
    [
        (1, 8, 0, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (2, 4, 0, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        # Each has its half of the node, also where it does not fill it.
        (2, 2, 0, [[0, 1], [4, 5]]),
        (4, 1, 0, [[0], [2], [4], [6]]),
        (2, 3, 2, [[2, 3, 4], [5, 6, 7]]),
        # Hardware threads where there are too few cores.
        (2, 8, 0, [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]),
        (4, 5, 0, None),
        (1, 8, 8, None),
    ],
)
def test_layout_spreads_ranks_evenly_over_cores(ranks, threads, reserved, expected):
    assert affinity.assign_cpus(EIGHT_CORES, ranks, threads, reserved) == expected


def test_cores_are_ordered_by_numa_node(tmp_path):
    for cpu, (node, core) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 0)]):
        cpu_folder = tmp_path / f"cpu{cpu}"
        (cpu_folder / "topology").mkdir(parents=True)
        (cpu_folder / f"node{node}").mkdir()
        (cpu_folder / "topology" / "core_id").write_text(f"{core}\n")
        (cpu_folder / "topology" / "physical_package_id").write_text(f"{node}\n")
    assert affinity.list_cores(set(range(6)), tmp_path) == [[0, 4], [2], [1, 5], [3]]
    assert affinity.list_cores({1, 3, 4}, tmp_path) == [[4], [1], [3]]


def test_threads_inherit_the_pinning_of_their_rank():
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one CPU is no choice")
    script = (
        "from xfbench.worker import affinity, observe; import threading, time\n"
        "own = affinity.pin_rank(1, 2, 1, 0)\n"
        "threading.Thread(target=time.sleep, args=(1,)).start()\n"
        "print(own, observe.affinity())\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assigned_cpus, observed_cpus = completed.stdout.strip().split("] [")
    assert assigned_cpus.strip("[]") == observed_cpus.strip("[]") and "," not in assigned_cpus


def test_rank_is_not_pinned_when_cores_are_too_few():
    assert affinity.pin_rank(0, 64, 1000, 0) is None
