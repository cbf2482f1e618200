"""The noise gate: other activity during a launch is detected, named and refused by --strict."""

import os
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace

import pytest

from xfbench.host import conditions, doctor
from xfbench.model.record import Competitor, Conditions
from xfbench.worker import cgroup

pytestmark = pytest.mark.alone

QUIET = Conditions(
    load_before=0.1,
    load_after=0.2,
    steal_seconds=0.0,
    swap_bytes=0,
    throttled_seconds=0.0,
    other_cpus=0.02,
    competing=(),
    seconds=10.0,
)


def watch_conditions(seconds):
    before = conditions.read_conditions()
    time.sleep(seconds)
    return conditions.conditions_between(before, conditions.read_conditions())


def test_busy_process_is_detected_and_named(burner):
    measured = watch_conditions(2.0)
    [competitor] = [competitor for competitor in measured.competing if competitor.name == "burner"]
    assert 0.2 < competitor.cpus < 1.2
    assert measured.other_cpus > 0.2
    assert "burner (pid" in conditions.name_other_programs(measured)


def test_own_work_is_not_counted_as_noise():
    before = conditions.read_conditions()
    script = "import time; end = time.process_time() + 1.0\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    after = conditions.read_conditions()
    measured = conditions.conditions_between(before, after)
    foreign = conditions.conditions_between(before, replace(after, own=before.own))
    with_reported_time = conditions.conditions_between(
        before, replace(after, own=before.own), after.own - before.own
    )
    assert (foreign.other_cpus - measured.other_cpus) * measured.seconds > 0.9
    # Ranks that are no child processes report their CPU time themselves.
    assert with_reported_time.other_cpus == pytest.approx(measured.other_cpus)
    assert os.getpid() not in {pid for pid, _ in after.processes}


def test_cpu_time_of_ended_processes_is_reported():
    measured = QUIET.model_copy(update={"other_cpus": 1.4})
    [line] = conditions.list_disturbances(measured, 2)
    assert line == "short-lived or small processes used 1.4 cores"


@pytest.mark.parametrize(
    ("update", "line"),
    [
        ({"competing": (Competitor(name="stress", cpus=0.9),)}, "another process used 0.9 cores"),
        (
            {"competing": (Competitor(name="stress", cpus=0.9, pid=7),)},
            "another process used 0.9 cores",
        ),
        ({"steal_seconds": 2.0}, "the hypervisor took 10% of the CPU time"),
        ({"throttled_seconds": 0.05}, "the CPU limit throttled processes for 0.1 s"),
        ({"swap_bytes": 3_000_000}, "3 MB were swapped out"),
    ],
)
def test_each_kind_of_noise_is_reported(update, line):
    assert conditions.list_disturbances(QUIET, 2) == []
    assert conditions.list_disturbances(QUIET.model_copy(update=update), 2) == [line]


def test_throttling_and_swapping_make_a_launch_invalid():
    assert conditions.throttle_swap_or_gpu_sharing_defect(QUIET, "cpu") is None
    throttled = QUIET.model_copy(update={"throttled_seconds": 3.0})
    assert "3.0 s of 10.0 s" in conditions.throttle_swap_or_gpu_sharing_defect(throttled, "cpu")
    assert "swap" in conditions.throttle_swap_or_gpu_sharing_defect(
        QUIET.model_copy(update={"swap_bytes": 2**30}), "cpu"
    )
    neighbour = (Competitor(name="stress", cpus=1.0),)
    assert (
        conditions.throttle_swap_or_gpu_sharing_defect(
            QUIET.model_copy(update={"competing": neighbour}), "cpu"
        )
        is None
    )


def test_reading_includes_cgroup_throttling(tmp_path, monkeypatch):
    (tmp_path / "job").mkdir()
    (tmp_path / "own").write_text("0::/job\n")
    file = tmp_path / "job" / "cpu.stat"
    file.write_text("usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n")
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_PROCESS_GROUPS", tmp_path / "own")
    monkeypatch.setattr(cgroup, "list_mounts", list)
    before = conditions.read_conditions()
    file.write_text("usage_usec 5\nnr_throttled 4\nthrottled_usec 4000000\n")
    measured = conditions.conditions_between(before, conditions.read_conditions())
    assert measured.throttled_seconds == pytest.approx(1.5)


def test_strict_refuses_a_machine_with_a_busy_process(burner):
    with pytest.raises(doctor.NoisyError, match=r"processes: .*burner"):
        doctor.require_all_checks_ok()


def test_thermal_throttling_is_counted(tmp_path):
    assert conditions._count_thermal_throttles(tmp_path) is None
    for cpu, count in ((0, 3), (1, 4)):
        throttle_folder = tmp_path / f"cpu{cpu}" / "thermal_throttle"
        throttle_folder.mkdir(parents=True)
        (throttle_folder / "core_throttle_count").write_text(f"{count}\n")
    assert conditions._count_thermal_throttles(tmp_path) == 7
    hot = QUIET.model_copy(update={"thermal_throttles": 2})
    assert "thermally throttled 2 times" in conditions.throttle_swap_or_gpu_sharing_defect(
        hot, "cpu"
    )


def test_shared_gpu_counts_only_against_gpu_launches():
    shared = QUIET.model_copy(update={"accelerator_processes": ("python3", "python3")})
    defect = conditions.throttle_swap_or_gpu_sharing_defect(shared, "cuda")
    assert "with 2 other processes" in defect and "python3" not in defect
    assert conditions.throttle_swap_or_gpu_sharing_defect(shared, "cpu") is None
    assert conditions.throttle_swap_or_gpu_sharing_defect(QUIET, "cuda") is None
    # The ranks used other GPUs.
    assert (
        conditions.throttle_swap_or_gpu_sharing_defect(
            shared, "cuda", ranks_report_gpu_sharing=True
        )
        is None
    )


@pytest.mark.parametrize(("seconds", "disturbs"), [(0.39, False), (0.41, True)])
def test_steal_disturbs_beyond_one_percent_of_all_cores(seconds, disturbs):
    """One percent of four cores in ten seconds is 0.4 s."""
    stolen = QUIET.model_copy(update={"steal_seconds": seconds})
    assert bool(conditions.list_disturbances(stolen, 4)) == disturbs


@pytest.mark.parametrize(("cpus", "disturbs"), [(0.19, False), (0.21, True)])
def test_ended_processes_disturb_beyond_a_tenth_of_all_cores(cpus, disturbs):
    measured = QUIET.model_copy(update={"other_cpus": cpus})
    assert bool(conditions.list_disturbances(measured, 2)) == disturbs


@pytest.mark.parametrize(
    ("update", "valid"),
    [
        ({"throttled_seconds": 0.1}, True),  # one percent of ten seconds
        ({"throttled_seconds": 0.11}, False),
        ({"swap_bytes": 1_000_000}, True),
        ({"swap_bytes": 1_000_001}, False),
        ({"thermal_throttles": 0}, True),
        ({"thermal_throttles": 1}, False),
    ],
)
def test_launch_is_invalid_above_each_limit_but_not_at_it(update, valid):
    reason = conditions.throttle_swap_or_gpu_sharing_defect(QUIET.model_copy(update=update), "cpu")
    assert (reason is None) == valid


@pytest.fixture
def make_reading():
    """Return a function that makes a reading; `used` has CPU seconds by process name."""

    def make_from_usage(moment, used, **fields):
        processes = {(pid, 0.0): usage for pid, usage in enumerate(used.items())}
        counters = {"load": 0.0, "steal": 0.0, "busy": 0.0, "own": 0.0, "throttled": 0.0, "swap": 0}
        return conditions.Reading(moment, processes=processes, **{**counters, **fields})

    return make_from_usage


def test_processes_compete_from_a_tenth_of_a_core_busiest_first(make_reading):
    before = make_reading(100.0, {"idle": 5.0, "daemon": 5.0, "burner": 5.0})
    after = make_reading(110.0, {"idle": 5.9, "daemon": 6.0, "burner": 14.0, "fresh": 2.0})
    competitors = conditions.conditions_between(before, after).competing
    assert [competitor.name for competitor in competitors] == ["burner", "fresh", "daemon"]
    assert [competitor.cpus for competitor in competitors] == pytest.approx([0.9, 0.2, 0.1])


def test_other_cpus_exclude_the_cpu_time_of_the_launch(make_reading):
    before, after = make_reading(100.0, {}), make_reading(110.0, {}, busy=30.0, own=4.0)
    assert conditions.conditions_between(
        before, after, launch_cpu_seconds=6.0
    ).other_cpus == pytest.approx(2.0)
    assert conditions.conditions_between(before, after, launch_cpu_seconds=40.0).other_cpus == 0


def test_decreasing_counters_count_as_zero(make_reading):
    before = make_reading(100.0, {}, steal=3.0, swap=10**9, throttled=2.0, thermal=7)
    measured = conditions.conditions_between(before, make_reading(110.0, {}, thermal=5))
    assert (measured.steal_seconds, measured.swap_bytes, measured.throttled_seconds) == (0, 0, 0)
    assert measured.thermal_throttles == 0
    assert conditions.conditions_between(before, make_reading(110.0, {})).thermal_throttles is None


def test_guest_time_is_not_counted_twice(monkeypatch):
    """Linux includes guest time in `user` and `nice`: see proc_stat(5)."""
    names = "user nice system idle iowait irq softirq steal guest guest_nice"
    times = namedtuple("times", names)(10.0, 5.0, 3.0, 100.0, 20.0, 0.5, 0.5, 7.0, 4.0, 2.0)
    monkeypatch.setattr(conditions.psutil, "cpu_times", lambda: times)
    reading = conditions.read_conditions()
    assert (reading.busy, reading.steal) == (19.0, 7.0)
