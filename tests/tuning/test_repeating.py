"""Which launches of a search are repeated, and how often."""

import pytest

from tests.sample_records import vary_record
from xfbench.host import core_latency
from xfbench.model.record import Conditions
from xfbench.tuning import repeating
from xfbench.worker.core_latency import near_cores_latency_seconds


def test_spoiled_launches_are_repeated_after_the_block():
    order = []

    def launch(setting):
        order.append(setting)
        return setting, order.count(setting)

    last_results = repeating.launch_block(
        "abc", launch, lambda numbered_launch: numbered_launch in {("b", 1), ("c", 1), ("c", 2)}
    )
    assert "".join(order) == "abcbcc"
    assert last_results == {"a": ("a", 1), "b": ("b", 2), "c": ("c", 3)}


def test_repeats_end_at_a_limit_and_the_last_launch_counts():
    order = []
    last_results = repeating.launch_block(
        "ab", lambda setting: order.append(setting) or len(order), lambda _: True
    )
    assert len(order) == 2 * (1 + repeating.MAX_REPEATS)
    assert last_results == {"a": len(order) - 1, "b": len(order)}


def test_existing_results_count_when_launches_run_out():
    remaining_results = ["third", "second", "first"]
    last_results = repeating.launch_block(
        "ab", lambda _: remaining_results.pop() if remaining_results else None, lambda _: True
    )
    assert last_results == {"a": "third", "b": "second"}


@pytest.fixture
def launch_record(record):
    """Return a function that builds a record with these core-to-core latencies in seconds."""

    def build_record(*latencies, threads=2, **request):
        quiet = {"load_before": 0.0, "load_after": 0.0, "steal_seconds": 0.0, "swap_bytes": 0}
        conditions = Conditions(**quiet, seconds=1.0, handover_seconds=latencies)
        return record((0.1,), 1, {"conditions": conditions}, threads=threads, **request)

    return build_record


def test_distant_cores_spoil_only_launches_of_several_threads(
    launch_record,
):
    near, far, migrated = (
        launch_record(2.0e-7, 1.9e-7),
        launch_record(3.3e-7, 3.2e-7),
        launch_record(2.0e-7, 3.3e-7),
    )
    nearest = near_cores_latency_seconds([3.3e-7, 3.2e-7, 2.0e-7, 1.9e-7])
    assert nearest == 1.9e-7
    assert [
        repeating.has_distant_cores(launch, nearest)
        for launch in (near, far, migrated, launch_record())
    ] == [
        0,
        1,
        1,
        0,
    ]
    assert not repeating.has_distant_cores(launch_record(3.3e-7, 3.2e-7, threads=1), nearest)
    failed = {"status": "failed", "reason": "no such kernel", "measurement": None}
    assert not repeating.has_distant_cores(vary_record(far, **failed), nearest)
    assert not repeating.has_distant_cores(far, 3.2e-7)  # no lower latency is known
    assert near_cores_latency_seconds([]) is None


def test_search_learns_the_lowest_core_to_core_latency(launch_record):
    near, far = launch_record(2.0e-7, 1.9e-7), launch_record(3.3e-7, 3.2e-7)
    cores = repeating.CoreMonitor()
    cores.count_launch_and_add_latencies(far)
    assert not cores.decide_and_count_repeat(far)
    cores.count_launch_and_add_latencies(near)
    assert cores.decide_and_count_repeat(far) and not cores.decide_and_count_repeat(near)
    assert repeating.CoreMonitor([1.9e-7]).decide_and_count_repeat(
        far
    )  # a lower latency from an earlier search


def test_rare_low_latency_is_forgotten(launch_record):
    """A short time with both threads on one core made all other latencies look high."""
    usual, cores = launch_record(2.9e-7, 3.2e-7), repeating.CoreMonitor()
    cores.count_launch_and_add_latencies(launch_record(1.1e-7, 1.2e-7))
    assert cores.decide_and_count_repeat(usual)
    for _ in range(10):
        cores.count_launch_and_add_latencies(usual)
    assert not cores.decide_and_count_repeat(usual) and cores.near_core_latency_s == 2.9e-7


def test_repeats_stay_a_limited_share_of_launches(launch_record):
    far, cores = launch_record(3.3e-7, 3.2e-7), repeating.CoreMonitor([1.9e-7])
    for _ in range(50):

        def launch(setting):
            cores.count_launch_and_add_latencies(far)
            return far

        repeating.launch_block("abcd", launch, cores.decide_and_count_repeat)
    assert cores.repeats <= cores.launches / 2 + repeating.MAX_REPEATS
    assert cores.launches == 200 + cores.repeats


def test_core_to_core_latencies_are_remembered_until_a_reboot(launch_record, monkeypatch, tmp_path):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    core_latency.save_latencies_of_record(launch_record())
    assert core_latency.read_saved_latencies() == []
    for latency_s in (2.2e-7, 1.9e-7, 3.2e-7):
        core_latency.save_latencies_of_record(launch_record(latency_s, 3.3e-7))
    assert core_latency.read_saved_latencies() == [2.2e-7, 3.3e-7, 1.9e-7, 3.3e-7, 3.2e-7, 3.3e-7]
    # A file without numbers is ignored.
    [file] = (tmp_path / "home" / "handover").iterdir()
    file.write_text("?")
    assert core_latency.read_saved_latencies() == []
    core_latency.save_latencies_of_record(launch_record(2.2e-7, 3.3e-7))
    assert core_latency.read_saved_latencies() == [2.2e-7, 3.3e-7]
    # After a reboot the vCPUs may be on other cores.
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(core_latency, "_BOOT", tmp_path / "boot")
    assert core_latency.read_saved_latencies() == []


def test_two_ranks_of_one_thread_are_spoiled_as_two_threads_are(launch_record):
    ranks = {"ranks": 2, "strategy": "mpi", "scaling": "weak", "global_batch_size": 8}
    assert repeating.has_distant_cores(launch_record(3.3e-7, threads=1, **ranks), 1.9e-7)


def test_at_most_half_as_many_launches_are_repeated(launch_record):
    """A thousand earlier low latencies keep the lowest one valid for the whole test."""
    far, cores = launch_record(3.3e-7, 3.2e-7), repeating.CoreMonitor([1.9e-7] * 1000)
    for _ in range(40):
        cores.count_launch_and_add_latencies(far)
    assert [cores.decide_and_count_repeat(far) for _ in range(30)] == [True] * 20 + [False] * 10
