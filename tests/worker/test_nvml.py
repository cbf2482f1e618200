"""What NVML tells of a device, through a library that has its interface and values of ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import nvml as stub
from tests.fake_trainer import FakeTrainer
from xfbench.worker import energy, nvml, utilization

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture
def write_nvml_values(tmp_path, monkeypatch):
    """A function that has it say `values`; its library's path."""
    file = tmp_path / "values"
    monkeypatch.setenv("NVML_VALUES", str(file))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    library = stub.build(tmp_path)
    stub.write_device(file)

    def write_values(**values):
        stub.write_device(file, **values)
        return str(library)

    yield write_values
    nvml.load_library.cache_clear()


def find_first_device(library):
    return nvml.find_rank_device(0, None, library)


def read_first_device(library):
    return nvml.read_device_state(find_first_device(library))


def test_nvml_values_are_converted_to_si_units(write_nvml_values):
    readings = read_first_device(write_nvml_values(reasons=0x4 | 0x40 | 0x1, busy=37))
    assert readings["name"] == "a GPU" and readings["driver"] == "555.55"
    assert readings["clock_hz"] == readings["most_clock_hz"] == 1.41e9
    assert readings["temperature_celsius"] == 61
    assert readings["power_limit_watts"] == 400
    assert (readings["memory_bytes"], readings["memory_of_bytes"]) == (3 * 2**30, 40 * 2**30)
    assert readings["busy"] == 0.37
    assert readings["slowed_by"] == ["power cap", "hardware thermal slowdown"]
    # The other causes are not supported.
    assert nvml.slowed_seconds(find_first_device(write_nvml_values())) == {
        "power": 1.0,
        "thermal": 0.0,
    }


def test_missing_nvml_values_are_none(write_nvml_values):
    library = write_nvml_values()
    Path(os.environ["NVML_VALUES"]).write_text("count 1\n")
    readings = read_first_device(library)
    assert readings["slowed_by"] == readings["foreign"] == []
    assert {readings[name] for name in readings if name not in ("slowed_by", "foreign")} == {None}
    device = find_first_device(library)
    assert nvml.energy_joules(device) is None and nvml.slowed_seconds(device) == {}


def test_read_returns_none_without_library_driver_or_device(write_nvml_values, monkeypatch):
    assert find_first_device("libthere-is-none.so.1") is None
    assert find_first_device(write_nvml_values(count=0)) is None
    nvml.load_library.cache_clear()
    monkeypatch.delenv("NVML_VALUES")
    assert nvml.load_library(write_nvml_values()) is None


def test_changes_between_two_readings_are_reported(write_nvml_values):
    device = find_first_device(write_nvml_values(busy__2=100, temperature__2=88))
    changes = nvml.describe_device_after_launch(nvml.read_device_state(device), device)
    assert changes["busy_before"] == 0.0 and "busy" not in changes
    assert changes["temperature_celsius"] == 88
    assert changes["others"] == []


def test_device_that_becomes_idle_was_not_busy(write_nvml_values):
    device = find_first_device(write_nvml_values(busy=99, busy__3=0))
    assert nvml.read_device_before_launch(device)["busy"] == 0.0


@pytest.mark.parametrize("window", [1, 2])
def test_utilization_is_sampled_between_timed_windows(
    write_nvml_values, monkeypatch, clock, train, window
):
    """Of 0.6 s each, two steps fill a second. The reading before the launch is the first one."""
    library = write_nvml_values(busy__2=99, busy__3=50, busy__4=70, busy__5=0)
    monkeypatch.setattr(nvml.find_rank_device, "__defaults__", (None, library))
    events = []

    class GpuTrainer(FakeTrainer):
        def step(self, batch):
            clock.now += 0.6
            events.append("step")

        def wait_for_loss(self):
            events.append("wait")
            return super().wait_for_loss()

    read_busy_share = nvml.busy_share

    def record_sample(device):
        events.append("sample")
        return read_busy_share(device)

    monkeypatch.setattr(nvml, "busy_share", record_sample)
    reply = train(GpuTrainer(), device="cuda", steps=4, warmup=2, window=window)
    [gpu] = reply["observed"]["gpus"]
    assert gpu["utilization"] == pytest.approx(0.6)
    samples = [number for number, event in enumerate(events) if event == "sample"]
    assert len(samples) == 5  # before, in the warm-up, twice in the timed steps, and after
    assert {events[number - 1] for number in samples[1:-1]} == {"wait"}


def test_short_launch_has_no_utilization(write_nvml_values, monkeypatch, clock, train):
    library = write_nvml_values(busy__2=50)
    monkeypatch.setattr(nvml.find_rank_device, "__defaults__", (None, library))
    assert train(FakeTrainer(), device="cuda")["observed"]["gpus"][0]["utilization"] is None


def test_utilization_covers_neither_the_warmup_nor_other_work(monkeypatch):
    """The warm-up is extended by windows 2 and 3; window 6 follows an evaluation."""
    now, shares = [0.0], iter([0.1, 0.2, 0.3, 0.4])
    monkeypatch.setattr(nvml, "busy_share", lambda device: next(shares))
    meter = utilization.UtilizationMeter("a GPU", lambda: now[0])
    meter.interrupt(1)
    for window in (2, 3, 4, 5):
        now[0] += 0.75
        meter.mark(window)  # samples after windows 3 and 5
    now[0] += 60
    meter.interrupt(5)
    now[0] += 0.75
    meter.mark(6)  # too early after the evaluation
    assert meter.read(3) == 0.2 and meter.read(4) is None
    assert meter.read(1) == pytest.approx(0.15)


def test_busy_device_reports_its_lowest_utilization(write_nvml_values):
    device = find_first_device(write_nvml_values(busy=99, busy__2=80, busy__3=91))
    assert nvml.read_device_before_launch(device)["busy"] == 0.8


def test_meter_counts_slowdowns_and_omits_a_reset_counter(write_nvml_values):
    values = {"held_0__2": 4 * 10**9, "held_1": 3 * 10**9, "held_1__2": 10**9}
    device = find_first_device(write_nvml_values(energy__2=5_250_000, **values))
    meter = energy.EnergyMeter("cuda", device, lambda: 0.0)
    assert meter.read() == (250.0, 0.0, {"power": 3.0}, 0.0)


@pytest.mark.parametrize("options", [[], ["-DDRIVER_440"]], ids=["a driver of now", "an old one"])
def test_processes_from_another_folder_are_listed_as_foreign(write_nvml_values, tmp_path, options):
    waiting_command = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(waiting_command, stdin=subprocess.PIPE, cwd=tmp_path) as foreign_process,
        subprocess.Popen(waiting_command, stdin=subprocess.PIPE) as rank_process,
    ):
        unused_pid = 2**22 + 1  # more than a process may have as its number
        library = stub.build(tmp_path, *options)
        write_nvml_values(
            processes=f"{foreign_process.pid},{rank_process.pid},{os.getpid()},{unused_pid}"
        )
        assert read_first_device(str(library))["foreign"] == [_process_name(foreign_process.pid)]
        for process in (foreign_process, rank_process):
            process.communicate(b"\n")


def _process_name(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize(
    ("before", "after", "others"),
    [
        ("", "self", 0),
        ("1", "1,self", 1),
        ("", "4194305", None),  # a process of the host, which may be this one
        ("", "", None),  # this process computes, but is not listed
        ("self", "self", None),  # this process did not compute yet
    ],
    ids=["alone", "shared", "other numbers", "empty list", "same number by chance"],
)
def test_other_processes_are_unknown_unless_process_ids_match(
    write_nvml_values, before, after, others
):
    device = find_first_device(write_nvml_values(processes=before, processes__2=after))
    description = nvml.describe_device_after_launch(nvml.read_device_state(device), device)
    names = description["others"]
    assert (None if names is None else len(names)) == others


UUIDS = "GPU-1a,GPU-1b,GPU-2,GPU-3"


@pytest.mark.parametrize(
    ("visible", "rank", "handle"),
    [
        (None, 0, 1),
        (None, 5, 2),
        ("2,3", 0, 3),
        ("2,3", 3, 4),
        ("", 0, None),
        ("3,9,1", 1, 4),  # an entry that names no device ends the list
        ("3,-1,1", 1, 4),
        ("1,1", 0, None),
        ("GPU-2", 7, 3),
        ("GPU-2, GPU-1b", 1, 2),
        ("GPU-1", 0, None),  # begins the UUIDs of two devices
        ("GPU-3,GPU-1,GPU-2", 1, 4),
        ("GPU-3,2", 1, 4),
        ("2,GPU-3", 1, 3),
    ],
)
def test_rank_uses_the_device_assigned_by_cuda(
    write_nvml_values, monkeypatch, visible, rank, handle
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device = nvml.find_rank_device(rank, None, write_nvml_values(count=4, uuids=UUIDS))
    assert (device and device.handle.value) == handle


@pytest.mark.parametrize("visible", [None, "0", "GPU-1a"])
@pytest.mark.parametrize(("uuid", "handle"), [("2", 3), ("GPU-1B", 2), ("4", None)])
def test_device_that_the_framework_names_is_used(
    write_nvml_values, monkeypatch, visible, uuid, handle
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device = nvml.find_rank_device(0, uuid, write_nvml_values(count=4, uuids=UUIDS))
    assert (device and device.handle.value) == handle


MIG = {"count": 2, "uuids": UUIDS, "mig": 1, "mig_uuids": "MIG-5,MIG-6"}


@pytest.mark.parametrize(
    ("visible", "uuid", "handle"),
    [
        (None, None, 101),
        (None, "1a", 101),  # a framework may name the GPU of the instance
        ("MIG-6", "6", 102),
        ("0", None, 101),
        ("GPU-1a", None, 101),
        ("MIG-6", None, 102),
        ("MIG-6,MIG-5", None, 102),
        ("MIG-GPU-1a/2/0", None, 102),
        ("MIG-GPU-1a/9/0", None, None),
        ("MIG-7", None, None),
        ("1", None, 2),
    ],
)
def test_mig_instance_is_found(write_nvml_values, monkeypatch, visible, uuid, handle):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device = nvml.find_rank_device(1, uuid, write_nvml_values(**MIG))
    assert (device and device.handle.value) == handle
    assert device is None or ("MIG" in device.name) == (handle > 100)


def test_busy_time_is_unknown_if_the_framework_uses_another_device(write_nvml_values, monkeypatch):
    library = write_nvml_values(count=2, uuids=UUIDS, processes="self")
    monkeypatch.setattr(nvml.find_rank_device, "__defaults__", (None, library))
    expected = nvml.find_rank_device(0)
    before = nvml.read_device_before_launch(expected)
    assert nvml.use_device_of_framework(expected, before, 0, None) == (expected, before)
    assert nvml.use_device_of_framework(expected, before, 0, "1a")[1] == before
    device, before = nvml.use_device_of_framework(expected, before, 0, "1b")
    assert device.handle.value == 2
    description = nvml.describe_device_after_launch(before, device)
    assert (description["busy_before"], description["others"]) == (None, [])
    assert nvml.use_device_of_framework(expected, before, 0, "9") == (None, None)


def test_cpus_near_a_device_are_listed(write_nvml_values):
    library = write_nvml_values(count=2, cpus_1=0b11110000)
    assert nvml.cpus_near(nvml.find_rank_device(1, None, library)) == {4, 5, 6, 7}
    assert nvml.cpus_near(nvml.find_rank_device(0, None, library)) == set()


@pytest.mark.parametrize(
    ("visible", "shares_gpus", "near"),
    [
        (None, False, [{4, 5}, {6, 7}]),
        ("1,0", False, [{6, 7}, {4, 5}]),
        ("1", False, []),  # the launcher has given each rank its own GPU
        ("1", True, [{6, 7}, {6, 7}]),
        ("", True, [set(), set()]),
    ],
)
def test_cpus_near_other_ranks_are_known_if_their_gpus_are_visible(
    write_nvml_values, monkeypatch, visible, shares_gpus, near
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = write_nvml_values(count=2, cpus_0=0b110000, cpus_1=0b11000000)
    assert nvml.list_cpus_near_ranks([0, 1], shares_gpus, library) == near


def test_old_library_without_functions_reports_nothing(write_nvml_values, tmp_path, monkeypatch):
    """A library with the functions that every driver has, and no others."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    source, library = tmp_path / "old.c", tmp_path / "libold.so"
    source.write_text(
        "int nvmlInit_v2(void) { return 0; }\n"
        "int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }\n"
        "int nvmlDeviceGetHandleByIndex_v2(unsigned n, void **h) { *h = h; return 0; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    device = find_first_device(str(library))
    state = nvml.read_device_state(device)
    assert not any(state.values())
    assert nvml.describe_device_after_launch(state, device)["others"] is None
    assert nvml.cpus_near(device) == set() and nvml.slowed_seconds(device) == {}
