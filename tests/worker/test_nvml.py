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
def telling(tmp_path, monkeypatch):
    """A function that has it say `values`; its library's path."""
    file = tmp_path / "values"
    monkeypatch.setenv("NVML_VALUES", str(file))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    library = stub.build(tmp_path)
    stub.write_device(file)

    def say(**values):
        stub.write_device(file, **values)
        return str(library)

    yield say
    nvml.library.cache_clear()


def read(library):
    return nvml.read_device(0, library)


def test_nvml_values_are_converted_to_si_units(telling):
    told = read(telling(reasons=0x4 | 0x40 | 0x1, busy=37))
    assert told["name"] == "a GPU" and told["driver"] == "555.55"
    assert told["clock_hz"] == told["most_clock_hz"] == 1.41e9
    assert told["temperature_celsius"] == 61
    assert told["power_limit_watts"] == 400
    assert (told["memory_bytes"], told["memory_of_bytes"]) == (3 * 2**30, 40 * 2**30)
    assert told["busy"] == 0.37
    assert told["slowed_by"] == ["power cap", "hardware thermal slowdown"]
    assert told["held"] == {"power": 1.0, "thermal": 0.0}  # the others are not supported


def test_missing_nvml_values_are_none(telling):
    values = telling()
    Path(os.environ["NVML_VALUES"]).write_text("count 1\n")
    told = read(values)
    assert told["slowed_by"] == told["others"] == [] and told["held"] == {}
    assert {told[name] for name in told if name not in ("slowed_by", "others", "held")} == {None}
    assert nvml.energy_joules(0, values) is None


def test_read_returns_none_without_library_driver_or_device(telling, monkeypatch):
    assert nvml.read_device(0, "libthere-is-none.so.1") is None
    assert read(telling(count=0)) is None
    nvml.library.cache_clear()
    monkeypatch.delenv("NVML_VALUES")
    assert nvml.library(telling()) is None


def test_changes_between_two_readings_are_reported(telling):
    values = telling(held_1__2=3 * 10**9, busy__2=100, temperature__2=88)
    seen = nvml.changes_since(read(values), 0, values)
    assert seen["busy_before"] == 0.0 and "busy" not in seen
    assert seen["temperature_celsius"] == 88
    assert seen["slowed_seconds"] == {"power": 0.0, "thermal": 3.0}
    assert nvml.changes_since(seen, 0, "libthere-is-none.so.1") is None


def test_device_that_becomes_idle_was_not_busy(telling):
    assert nvml.read_idle_device(0, telling(busy=99, busy__3=0))["busy"] == 0.0


def test_busy_device_reports_its_lowest_utilization(telling):
    assert nvml.read_idle_device(0, telling(busy=99, busy__2=80, busy__3=91))["busy"] == 0.8


def test_reset_throttle_counter_is_omitted(telling):
    values = telling(held_1=3 * 10**9, held_1__2=10**9)
    assert nvml.changes_since(read(values), 0, values)["slowed_seconds"] == {"power": 0.0}


@pytest.mark.parametrize("options", [[], ["-DDRIVER_440"]], ids=["a driver of now", "an old one"])
def test_processes_from_another_folder_are_listed_as_foreign(telling, tmp_path, options):
    waits = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(waits, stdin=subprocess.PIPE, cwd=tmp_path) as other,
        subprocess.Popen(waits, stdin=subprocess.PIPE) as rank,
    ):
        gone = 2**22 + 1  # more than a process may have as its number
        library = stub.build(tmp_path, *options)
        telling(processes=f"{other.pid},{rank.pid},{os.getpid()},{gone}")
        assert read(str(library))["others"] == [_name(other.pid)]
        for one in (other, rank):
            one.communicate(b"\n")


def _name(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize(
    ("visible", "rank", "number"),
    [(None, 0, 0), (None, 5, 1), ("2,3", 0, 2), ("2,3", 3, 3), ("GPU-1", 7, 98), ("", 0, None)],
)
def test_rank_uses_the_device_assigned_by_cuda(telling, monkeypatch, visible, rank, number):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = nvml.library(telling(count=4, uuid="GPU-1"))
    device = nvml.rank_device(library, rank)
    if number is None:
        assert device is None
    else:
        assert ctypes.cast(device, ctypes.c_void_p).value == number + 1


def test_energy_counts_the_device_of_the_rank(telling, monkeypatch):
    library = telling(energy__2=5_250_000)
    monkeypatch.setattr(nvml.energy_joules, "__defaults__", (library,))
    assert energy.joules_used(
        energy.read_counters("cuda"), energy.read_counters("cuda")
    ) == pytest.approx(250.0)
