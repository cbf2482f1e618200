"""The layout of processors, read from made-up system files."""

import pytest

from xfbench.host import topology

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"


@pytest.fixture
def two_sockets(tmp_path):
    """Files of two sockets with two cores each, two hardware threads per core, two NUMA nodes."""
    for cpu in range(8):
        core, socket = cpu % 4, cpu % 4 // 2
        folder = tmp_path / "cpu" / f"cpu{cpu}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology" / "physical_package_id").write_text(f"{socket}\n")
        (folder / "topology" / "thread_siblings_list").write_text(f"{core},{core + 4}\n")
        for index, (level, kind, size, shared) in enumerate(
            [("1", "Data", "32K", f"{core}"), ("3", "Unified", "32768K", f"socket {socket}")]
        ):
            cache = folder / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            (cache / "level").write_text(level)
            (cache / "type").write_text(kind)
            (cache / "size").write_text(size)
            (cache / "shared_cpu_list").write_text(shared)
    for node in (0, 1, 10):
        (tmp_path / "node" / f"node{node}").mkdir(parents=True)
        (tmp_path / "node" / f"node{node}" / "cpulist").write_text(f"{node}\n")
    (tmp_path / "version").write_text(DRIVER)
    return topology.read_topology(tmp_path / "cpu", tmp_path / "node", tmp_path / "version")


def test_sockets_cores_threads_and_nodes_are_counted(two_sockets):
    assert (two_sockets.sockets, two_sockets.cores, two_sockets.threads_per_core) == (2, 4, 2)
    assert two_sockets.numa_nodes == ("0", "1", "10")
    assert two_sockets.nvidia_driver == "550.54.15"


def test_shared_caches_count_once(two_sockets):
    assert two_sockets.caches == (
        topology.Cache("L1d", "32K", 4),
        topology.Cache("L3", "32768K", 2),
    )


def test_description_names_what_is_known(two_sockets, tmp_path):
    texts = topology.describe(two_sockets)
    assert texts["SMT"] == "on, 2 threads per core"
    assert texts["NUMA nodes"] == "3: CPUs 0; 1; 10"
    assert texts["caches"] == "L1d 4 × 32K, L3 2 × 32768K"
    nothing = topology.read_topology(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert topology.describe(nothing) == {}


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-3", 4), ("0-1,8-9", 4), ("0,4", 2)])
def test_cpus_of_a_list_are_counted(text, count):
    assert topology._count_cpus(text) == count
