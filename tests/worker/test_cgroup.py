"""Limits of control groups, wherever between the process and the root they are set."""

import subprocess
import sys

import pytest

from tests import memory_limits
from xfbench.host import doctor
from xfbench.worker import cgroup, mounts


@pytest.fixture
def write_groups(tmp_path, monkeypatch):
    """A function that writes the process's groups, and the groups' files by their paths."""
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroup, "_PROCESS_GROUPS", tmp_path / "own")
    monkeypatch.setattr(cgroup, "list_mounts", list)

    def write(process_groups, files):
        (tmp_path / "own").write_text(process_groups)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_limits_are_none_without_a_cgroup_limit(write_groups):
    assert (
        cgroup.cpu_limit()
        is cgroup.memory_limit_bytes()
        is cgroup.free_memory_below_limit_bytes()
        is None
    )
    assert cgroup.throttled_seconds() == 0
    write_groups("0::/\n", {"cpu.max": "max 100000", "memory.max": "max\n", "cpu.stat": "x 1\n"})
    assert (
        cgroup.cpu_limit()
        is cgroup.memory_limit_bytes()
        is cgroup.free_memory_below_limit_bytes()
        is None
    )


def test_lowest_limit_of_all_cgroup_levels_applies(write_groups):
    """A job that Slurm limits, in a slice that systemd limits."""
    write_groups(
        "0::/slurm/job_1/step_0\n",
        {
            "slurm/job_1/step_0/memory.max": "max",
            "slurm/job_1/memory.max": "3000",
            "slurm/job_1/memory.current": "1000",
            "slurm/job_1/cpu.max": "150000 100000",
            "slurm/job_1/cpu.stat": "usage_usec 3\nthrottled_usec 2500000\n",
            "slurm/memory.max": "2800",
            "slurm/memory.current": "2500",
            "slurm/cpu.max": "400000 100000",
            "slurm/cpu.stat": "throttled_usec 7000000\n",
        },
    )
    assert (cgroup.memory_limit_bytes(), cgroup.free_memory_below_limit_bytes()) == (2800, 300)
    assert (cgroup.cpu_limit(), cgroup.throttled_seconds()) == (1.5, 7.0)


def test_cgroup_v1_limits_are_read_per_controller(write_groups):
    no_limit = str(2**63 - 4096)
    write_groups(
        "4:memory:/slurm/uid_0/job_1\n3:cpuset:/other\n1:cpu,cpuacct:/slurm\n0::/\n",
        {
            "memory/slurm/uid_0/job_1/memory.limit_in_bytes": "5000",
            "memory/slurm/uid_0/job_1/memory.usage_in_bytes": "1500",
            "memory/memory.limit_in_bytes": no_limit,
            "cpu,cpuacct/slurm/cpu.cfs_quota_us": "50000",
            "cpu,cpuacct/slurm/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/slurm/cpu.stat": "nr_throttled 2\nthrottled_time 1500000000\n",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        },
    )
    assert (
        cgroup.memory_limit_bytes(),
        cgroup.free_memory_below_limit_bytes(),
        cgroup.cpu_limit(),
    ) == (5000, 3500, 0.5)
    assert cgroup.throttled_seconds() == 1.5


@pytest.mark.parametrize("path", ["/docker/abc", "/../../system.slice"])
def test_container_limits_are_read_from_the_cgroup_root(write_groups, path):
    files = {"memory.max": "4000", "memory.current": "1", "../memory.max": "1"}
    write_groups(f"0::{path}\n", files)
    assert (cgroup.memory_limit_bytes(), cgroup.free_memory_below_limit_bytes()) == (4000, 3999)


@pytest.mark.parametrize("text", ["-1", "9223372036854771712", "9223372036854710272", "max"])
def test_values_that_mean_no_limit_are_no_limits(write_groups, text):
    files = {"memory/a/memory.limit_in_bytes": text, "cpu/a/cpu.cfs_quota_us": "-1"}
    write_groups("5:memory:/a\n3:cpu:/a\n", {**files, "cpu/a/cpu.cfs_period_us": "100000"})
    assert cgroup.memory_limit_bytes() is cgroup.cpu_limit() is None
    assert cgroup.list_unknown_limits() == []


@pytest.mark.parametrize(
    ("root", "group", "file"),
    [
        ("/box/7", "/box/7", "cpu.max"),
        ("/box/7", "/box/7/step", "step/cpu.max"),
        ("/box/7", "/box/7/step", "cpu.max"),
        ("/", "/box/7", "box/cpu.max"),
        ("/elsewhere", "/box/7", "box/7/cpu.max"),
    ],
)
def test_a_mount_may_show_a_part_of_the_hierarchy(
    write_groups, tmp_path, monkeypatch, root, group, file
):
    write_groups(f"0::{group}\n", {f"b c/{file}": "150000 100000", "old/cpu.max": "100000 100000"})
    point = str(tmp_path / "cgroup").replace(" ", "\\040")
    lines = [
        f"40 1 0:40 / {point}/old rw - cgroup cgroup rw,cpu",
        f"41 1 0:41 {root} {point}/b\\040c rw - cgroup2 cgroup rw",
        f"42 1 0:42 / {point}/old rw - tmpfs cgroup rw",
    ]
    monkeypatch.setattr(cgroup, "list_mounts", lambda: mounts.list_mounts("\n".join(lines)))
    assert cgroup.cpu_limit() == 1.5


@pytest.mark.parametrize("name", ["cpu,cpuacct", "cpuacct,cpu", "cpu", "cpu,cpuacct,cpuset"])
@pytest.mark.parametrize("controllers", ["cpu,cpuacct", "cpuacct,cpu"])
def test_order_of_joint_controllers_does_not_matter(write_groups, name, controllers):
    group = f"{name}/batch/a\rb\u00a0"
    write_groups(
        f"3:{controllers}:/batch/a\rb\u00a0\n",
        {f"{group}/cpu.cfs_quota_us": "300000", f"{group}/cpu.cfs_period_us": "100000"},
    )
    assert cgroup.cpu_limit() == 3.0


@pytest.mark.parametrize("text", ["2G", "4096 kB", "0x100", "\u0664", "1e9", "150000"])
def test_limit_that_is_no_number_is_reported_and_not_taken(write_groups, text):
    write_groups("0::/job\n", {"job/memory.max": text, "job/cpu.max": "x 100000"})
    is_number = text == "150000"
    assert cgroup.memory_limit_bytes() == (150000 if is_number else None)
    assert cgroup.cpu_limit() is None
    reported = [] if is_number else [f"memory.max: {text}"]
    assert cgroup.list_unknown_limits() == ["cpu.max: x 100000", *reported]
    finding = doctor._check_cgroup_cpus()
    assert finding.state == "warn" and "cpu.max: x 100000" in finding.detail


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "100000 0"}, None),
        ({"cpu.max": "100000"}, None),
        ({"cpu.max": "0 100000"}, None),
        ({"cpu.max": "100000 100000"}, 1.0),
    ],
)
def test_quota_without_a_period_is_no_limit(write_groups, files, limit):
    write_groups("0::/\n", files)
    assert cgroup.cpu_limit() == limit


def test_cgroup_reads_a_real_memory_limit():
    limit_bytes = 2**28
    script = "from xfbench.worker import cgroup, host; print(cgroup.memory_limit_bytes(), "
    script += "cgroup.free_memory_below_limit_bytes(), host.machine_facts()['cgroup_memory_bytes'])"
    with memory_limits.limit_memory(limit_bytes) as limited_command:
        argv = limited_command([sys.executable, "-c", script])
        completed = subprocess.run(argv, capture_output=True, text=True, check=True)
    reported_limit, free_bytes, recorded_limit = map(int, completed.stdout.split())
    assert reported_limit == recorded_limit == limit_bytes
    assert 0 < free_bytes < limit_bytes
