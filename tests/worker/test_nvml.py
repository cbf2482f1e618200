"""What NVML tells of a device, through a library that has its interface and values of ours."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import nvml as stub
from xfbench.worker import energy, nvml

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


def read_first_device(library):
    return nvml.read_device_state(0, library)


def test_nvml_values_are_converted_to_si_units(write_nvml_values):
    readings = read_first_device(write_nvml_values(reasons=0x4 | 0x40 | 0x1, busy=37))
    assert readings["name"] == "a GPU" and readings["driver"] == "555.55"
    assert readings["clock_hz"] == readings["most_clock_hz"] == 1.41e9
    assert readings["temperature_celsius"] == 61
    assert readings["power_limit_watts"] == 400
    assert (readings["memory_bytes"], readings["memory_of_bytes"]) == (3 * 2**30, 40 * 2**30)
    assert readings["busy"] == 0.37
    assert readings["slowed_by"] == ["power cap", "hardware thermal slowdown"]
    assert readings["held"] == {"power": 1.0, "thermal": 0.0}  # the others are not supported


def test_missing_nvml_values_are_none(write_nvml_values):
    library = write_nvml_values()
    Path(os.environ["NVML_VALUES"]).write_text("count 1\n")
    readings = read_first_device(library)
    assert readings["slowed_by"] == readings["others"] == [] and readings["held"] == {}
    assert {readings[name] for name in readings if name not in ("slowed_by", "others", "held")} == {
        None
    }
    assert nvml.energy_joules(0, library) is None


def test_read_returns_none_without_library_driver_or_device(write_nvml_values, monkeypatch):
    assert nvml.read_device_state(0, "libthere-is-none.so.1") is None
    assert read_first_device(write_nvml_values(count=0)) is None
    nvml.load_library.cache_clear()
    monkeypatch.delenv("NVML_VALUES")
    assert nvml.load_library(write_nvml_values()) is None


def test_changes_between_two_readings_are_reported(write_nvml_values):
    library = write_nvml_values(held_1__2=3 * 10**9, busy__2=100, temperature__2=88)
    changes = nvml.state_and_changes_since(read_first_device(library), 0, library)
    assert changes["busy_before"] == 0.0 and "busy" not in changes
    assert changes["temperature_celsius"] == 88
    assert changes["slowed_seconds"] == {"power": 0.0, "thermal": 3.0}
    assert nvml.state_and_changes_since(changes, 0, "libthere-is-none.so.1") is None


def test_device_that_becomes_idle_was_not_busy(write_nvml_values):
    assert nvml.read_device_before_launch(0, write_nvml_values(busy=99, busy__3=0))["busy"] == 0.0


def test_busy_device_reports_its_lowest_utilization(write_nvml_values):
    assert (
        nvml.read_device_before_launch(0, write_nvml_values(busy=99, busy__2=80, busy__3=91))[
            "busy"
        ]
        == 0.8
    )


def test_reset_throttle_counter_is_omitted(write_nvml_values):
    library = write_nvml_values(held_1=3 * 10**9, held_1__2=10**9)
    assert nvml.state_and_changes_since(read_first_device(library), 0, library)[
        "slowed_seconds"
    ] == {"power": 0.0}


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
        assert read_first_device(str(library))["others"] == [_process_name(foreign_process.pid)]
        for process in (foreign_process, rank_process):
            process.communicate(b"\n")


def _process_name(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize(
    ("visible", "rank", "device_index"),
    [(None, 0, 0), (None, 5, 1), ("2,3", 0, 2), ("2,3", 3, 3), ("GPU-1", 7, 98), ("", 0, None)],
)
def test_rank_uses_the_device_assigned_by_cuda(
    write_nvml_values, monkeypatch, visible, rank, device_index
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = nvml.load_library(write_nvml_values(count=4, uuid="GPU-1"))
    device = nvml.rank_device_handle(library, rank)
    if device_index is None:
        assert device is None
    else:
        assert ctypes.cast(device, ctypes.c_void_p).value == device_index + 1


def test_energy_counts_the_device_of_the_rank(write_nvml_values, monkeypatch):
    library = write_nvml_values(energy__2=5_250_000)
    monkeypatch.setattr(nvml.energy_joules, "__defaults__", (library,))
    assert energy.joules_used(
        energy.read_counters("cuda"), energy.read_counters("cuda")
    ) == pytest.approx(250.0)
