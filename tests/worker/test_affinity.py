"""How ranks are laid out over cores, sockets and NUMA nodes, and that their threads stay there."""

import os
import subprocess
import sys

import pytest

from xfbench.worker import affinity

# CPUs 0 to 7: socket, core and NUMA node of each.
TWO_SOCKETS = [(cpu // 4, cpu % 4, cpu // 4) for cpu in range(8)]
TWO_SOCKETS_WITH_SMT = [(cpu % 4 // 2, cpu % 2, cpu % 4 // 2) for cpu in range(8)]
FOUR_NODES_ON_ONE_SOCKET = [(0, cpu, cpu // 2) for cpu in range(8)]
TWO_NODES_ON_EACH_SOCKET = [(cpu // 4, cpu % 4, cpu // 2) for cpu in range(8)]
ALL = set(range(8))
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
    for cpu, (node, siblings) in enumerate(
        [(0, "0,4"), (1, "1,5"), (0, "2"), (1, "3"), (0, "0,4"), (1, "1,5")]
    ):
        cpu_folder = tmp_path / f"cpu{cpu}"
        (cpu_folder / "topology").mkdir(parents=True)
        (cpu_folder / f"node{node}").mkdir()
        (cpu_folder / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
        (cpu_folder / "topology" / "physical_package_id").write_text(f"{node}\n")
    assert affinity.list_cores(set(range(6)), tmp_path) == [[0, 4], [2], [1, 5], [3]]
    assert affinity.list_cores({1, 3, 4}, tmp_path) == [[4], [1], [3]]


def test_hardware_threads_of_a_core_are_those_that_the_system_lists(tmp_path):
    """Two dies of one socket that both count their cores from 0, and a range as a list."""
    for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3", "4")):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{cpu // 2 % 2}\n")
        (topology / "thread_siblings_list").write_text(f"{siblings}\n")
    assert affinity.list_cores(set(range(6)), tmp_path) == [[0, 1], [2, 3], [4], [5]]


@pytest.fixture
def write_layout(tmp_path):
    """A function that writes the system's folder of CPUs and returns it.

    Each CPU has its socket, core and NUMA node. None: the system does not say the number.
    """

    def write(layout):
        for cpu, (socket, core, node) in enumerate(layout):
            folder = tmp_path / f"cpu{cpu}"
            (folder / "topology").mkdir(parents=True)
            siblings = [n for n, other in enumerate(layout) if other[:2] == (socket, core)]
            (folder / "topology" / "thread_siblings_list").write_text(f"{str(siblings)[1:-1]}\n")
            if socket is not None:
                (folder / "topology" / "physical_package_id").write_text(f"{socket}\n")
            if node is not None:
                (folder / f"node{node}").mkdir()
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("layout", "pinning", "allowed", "reserved", "expected"),
    [
        (TWO_SOCKETS, "sockets", ALL, 0, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (TWO_SOCKETS_WITH_SMT, "sockets", ALL, 0, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        (FOUR_NODES_ON_ONE_SOCKET, "sockets", ALL, 0, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (FOUR_NODES_ON_ONE_SOCKET, "numa", ALL, 0, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (TWO_NODES_ON_EACH_SOCKET, "sockets", ALL, 0, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (TWO_NODES_ON_EACH_SOCKET, "numa", ALL, 0, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        # A restricted cpuset: parts of two NUMA nodes, and one NUMA node that is left out.
        (FOUR_NODES_ON_ONE_SOCKET, "numa", {1, 4, 5, 7}, 0, [[1], [4, 5], [7]]),
        (TWO_SOCKETS_WITH_SMT, "sockets", {4, 2, 6}, 0, [[4], [2, 6]]),
        # The first cores, with all their hardware threads, are reserved.
        (TWO_SOCKETS_WITH_SMT, "sockets", ALL, 1, [[1, 5], [2, 3, 6, 7]]),
        (TWO_SOCKETS_WITH_SMT, "numa", ALL, 2, [[2, 3, 6, 7]]),
        # NUMA nodes are ordered by number, not by name.
        ([(0, 0, 10), (0, 1, 2)], "numa", {0, 1}, 0, [[1], [0]]),
    ],
)
def test_groups_have_the_allowed_cpus_of_a_socket_or_numa_node(
    write_layout, layout, pinning, allowed, reserved, expected
):
    assert affinity.group_cpus(pinning, allowed, reserved, write_layout(layout)) == expected


@pytest.mark.parametrize(
    ("pinning", "cpu", "words"),
    [
        ("sockets", (None, 0, 0), "to which socket CPU 1 belongs"),
        ("sockets", (-1, 0, 0), "to which socket CPU 1 belongs"),  # as some virtual machines say
        ("numa", (0, 0, None), "to which NUMA node CPU 1 belongs"),
    ],
)
def test_unknown_socket_or_numa_node_is_an_error(write_layout, pinning, cpu, words):
    folder = write_layout([(0, 0, 0), cpu])
    with pytest.raises(affinity.PinningError, match=f"{words}.*: use --pinning cores or none"):
        affinity.group_cpus(pinning, {0, 1}, 0, folder)
    assert affinity.group_cpus(pinning, {0}, 0, folder) == [[0]]
    assert affinity.plan_cpus("cores", 1, 1, 0, {0, 1}, folder) is not None


def test_all_cores_reserved_is_an_error(write_layout):
    with pytest.raises(affinity.PinningError, match="no CPU is free: the site reserves 4 cores"):
        affinity.group_cpus("sockets", ALL, 4, write_layout(TWO_SOCKETS_WITH_SMT))


@pytest.mark.parametrize(
    ("sizes", "ranks", "threads", "expected"),
    [
        # The group of each rank.
        ((4, 4), 1, 4, [0]),
        ((4, 4), 2, 3, [0, 1]),
        ((4, 4), 3, 1, [0, 0, 1]),
        ((4, 4), 4, 4, [0, 0, 1, 1]),
        ((2, 2, 2, 2), 2, 2, [0, 2]),
        ((2, 2, 2, 2), 3, 1, [0, 1, 2]),
        # Groups that are too small are not used.
        ((1, 4), 1, 2, [1]),
        ((2, 1, 2, 2), 3, 2, [0, 2, 3]),
        ((1, 4), 2, 1, [0, 1]),
    ],
)
def test_ranks_are_spread_over_the_groups_with_enough_cpus(sizes, ranks, threads, expected):
    groups = [[10 * group + cpu for cpu in range(size)] for group, size in enumerate(sizes)]
    planned = affinity.assign_groups("numa", groups, ranks, threads)
    assert planned == [groups[group] for group in expected]


@pytest.mark.parametrize(
    ("sizes", "ranks", "threads", "words"),
    [
        (
            (4, 4),
            1,
            5,
            "5 threads need a socket with 5 allowed CPUs; here, the sockets have 4, 4: "
            "use --threads 4 or fewer",
        ),
        (
            (1, 4),
            2,
            2,
            "2 ranks of 2 threads need 2 sockets with 2 allowed CPUs each; here, the sockets have "
            "1, 4: use --threads 1",
        ),
        (
            (4, 2, 3),
            2,
            4,
            "2 ranks of 4 threads need 2 sockets with 4 allowed CPUs each; here, the sockets have "
            "4, 2, 3: use --threads 3 or fewer",
        ),
    ],
)
def test_threads_that_do_not_fit_are_an_error_that_says_what_fits(sizes, ranks, threads, words):
    groups = [list(range(size)) for size in sizes]
    with pytest.raises(affinity.PinningError) as caught:
        affinity.assign_groups("sockets", groups, ranks, threads)
    assert str(caught.value) == words
    assert affinity.assign_groups("sockets", groups, ranks, affinity.max_threads(groups, ranks))


def test_plan_has_the_cpus_of_each_rank(write_layout):
    folder = write_layout(TWO_NODES_ON_EACH_SOCKET)
    planned = {
        pinning: affinity.plan_cpus(pinning, 2, 2, 0, ALL, folder)
        for pinning in ("cores", "sockets", "numa")
    }
    assert planned == {
        "cores": [[0, 1], [4, 5]],
        "sockets": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "numa": [[0, 1], [4, 5]],
    }
    assert affinity.plan_cpus("cores", 9, 2, 0, ALL, folder) is None


FIRST, SECOND = {0, 1, 2, 3}, {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("pinning", "near", "threads", "reserved", "expected"),
    [
        ("cores", [SECOND], 2, 0, [[4, 5]]),
        ("cores", [SECOND, FIRST], 2, 0, [[4, 5], [0, 1]]),
        ("cores", [SECOND, SECOND, FIRST, FIRST], 2, 0, [[4, 5], [6, 7], [0, 1], [2, 3]]),
        ("cores", [SECOND, FIRST], 2, 1, [[4, 5], [1, 2]]),
        ("cores", [SECOND, FIRST | {99}], 2, 0, [[4, 5], [0, 1]]),  # 99 is not allowed
        ("sockets", [SECOND, FIRST], 4, 0, [[4, 5, 6, 7], [0, 1, 2, 3]]),
        ("sockets", [SECOND, SECOND], 2, 0, [[4, 5, 6, 7], [4, 5, 6, 7]]),
        ("numa", [SECOND, SECOND], 2, 0, [[4, 5], [6, 7]]),
        ("numa", [SECOND], 2, 0, [[4, 5]]),
        # Ranks are laid out as on CPUs.
        ("cores", [SECOND, SECOND, SECOND], 2, 0, None),  # too few CPUs
        ("sockets", [SECOND, SECOND], 4, 0, None),
        ("numa", [SECOND], 3, 0, None),
        ("cores", [SECOND, set()], 2, 0, None),  # unknown
        ("cores", [SECOND, {3, 4}], 2, 0, None),
        ("cores", [SECOND, {98, 99}], 2, 0, None),
    ],
)
def test_rank_is_near_its_gpu(write_layout, pinning, near, threads, reserved, expected):
    folder = write_layout(TWO_NODES_ON_EACH_SOCKET)
    plan = affinity.plan_cpus_near_gpus(pinning, near, threads, reserved, ALL, folder)
    assert plan == expected


@pytest.mark.parametrize("pinning", ["cores", "sockets", "numa"])
def test_threads_inherit_the_pinning_of_their_rank(pinning):
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one CPU is no choice")
    script = (
        "from xfbench.worker import affinity, observe; import threading, time\n"
        f"own = affinity.pin_rank({pinning!r}, 1, 2, 1, 0)\n"
        "threading.Thread(target=time.sleep, args=(1,)).start()\n"
        "print(own, observe.affinity())\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assigned_cpus, observed_cpus = completed.stdout.strip().split("] [")
    assert assigned_cpus.strip("[]") == observed_cpus.strip("[]")
    assert pinning != "cores" or "," not in assigned_cpus


def test_rank_is_not_pinned_when_cores_are_too_few():
    assert affinity.pin_rank("cores", 0, 64, 1000, 0) is None
