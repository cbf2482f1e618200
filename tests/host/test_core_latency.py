"""Core-to-core latency, measured between the CPUs that a process may use."""

import os
import subprocess
import sys

import pytest

from xfbench.host import conditions, core_latency
from xfbench.model.record import Conditions
from xfbench.worker import observe, pingpong
from xfbench.worker.core_latency import CoreLatencyProbe, has_far_core_latency

LATENCY_SCRIPT = (
    "from xfbench.host import core_latency; print(core_latency.measure_core_latency_s())"
)


@pytest.mark.alone  # on busy cores nothing can be measured
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_core_to_core_latency_is_measured():
    latencies = [core_latency.measure_core_latency_s() for _ in range(5)]
    # In seconds: at least some nanoseconds. The upper limit only excludes other units.
    assert all(latency and 2e-8 < latency < 1e-2 for latency in latencies)


def test_single_cpu_has_no_core_to_core_latency():
    cpu = min(os.sched_getaffinity(0))
    script = f"import os; os.sched_setaffinity(0, {{{cpu}}}); {LATENCY_SCRIPT}"
    assert subprocess.check_output([sys.executable, "-c", script], timeout=60).strip() == b"None"


def test_silent_core_ends_the_measurement_after_a_time_limit(monkeypatch, tmp_path):
    silent = tmp_path / "silent.py"
    silent.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(pingpong, "__file__", str(silent))
    monkeypatch.setattr(core_latency, "_TIMEOUT_S", 0.2)
    assert core_latency.measure_core_latency_s() is None


def test_latency_1_5_times_higher_means_distant_cores():
    assert not has_far_core_latency(())
    assert not has_far_core_latency((2.0e-7,))
    assert not has_far_core_latency((2.0e-7, 2.9e-7))
    assert has_far_core_latency((2.0e-7, 3.1e-7)) and has_far_core_latency((3.1e-7, 2.0e-7))
    assert has_far_core_latency((3.1e-7, 3.2e-7), 2.0e-7) and not has_far_core_latency(
        (3.1e-7,), 2.9e-7
    )


@pytest.mark.alone  # on busy cores nothing can be measured
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_latency_probe_is_not_counted_in_worker_usage():
    earlier_descendants, used = observe.descendant_pids(), observe.descendants_cpu_seconds()
    probe = CoreLatencyProbe()
    try:
        assert all(2e-8 < probe.measure_round_trip_seconds() < 1e-2 for _ in range(20))
        assert observe.descendant_pids() == earlier_descendants
        assert observe.descendants_cpu_seconds() == used
    finally:
        probe.end_process()
    assert probe.measure_round_trip_seconds() is None


def test_failed_probe_start_gives_no_latency(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere")
    probe = CoreLatencyProbe()
    assert probe.measure_round_trip_seconds() is None
    probe.end_process()


def test_ended_probe_gives_no_latency():
    probe = CoreLatencyProbe()
    probe.end_process()
    assert probe.measure_round_trip_seconds() is None


def test_launch_with_migrated_vcpus_is_reported_as_noisy(record):
    calm = {"load_before": 0.0, "load_after": 0.0, "steal_seconds": 0.0, "swap_bytes": 0}

    def list_disturbances(latencies_around, latencies_between_steps=()):
        measured = Conditions(**calm, seconds=1.0, handover_seconds=latencies_around)
        launch = record((0.1,), 1, {"conditions": measured})
        observed = launch.observed.model_copy(update={"handover_seconds": latencies_between_steps})
        return conditions.list_record_disturbances(launch.model_copy(update={"observed": observed}))

    line = "vCPUs were migrated during the launch (core-to-core latency 0.20–0.33 µs)"
    assert list_disturbances((3.2e-7, 3.3e-7)) == []
    assert list_disturbances((2.0e-7, 3.3e-7)) == [line]
    # Latencies measured between timed steps take precedence.
    assert list_disturbances((2.0e-7, 2.0e-7), (2.0e-7, 3.3e-7)) == [line]
    # A launch of many seconds has thousands of latencies.
    assert list_disturbances((2.0e-7, 2.0e-7), (3.2e-7, *(2.0e-7, 3.3e-7) * 1000)) == [line]
    assert list_disturbances((2.0e-7, 3.3e-7), (2.0e-7, 2.1e-7, 2.0e-7)) == []


def test_every_reading_includes_core_to_core_latency():
    before, after = conditions.read_conditions(), conditions.read_conditions()
    expected = 2 if len(os.sched_getaffinity(0)) > 1 else 0
    assert len(conditions.conditions_between(before, after).handover_seconds) == expected
