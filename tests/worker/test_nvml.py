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
    stub.tell(file)

    def say(**values):
        stub.tell(file, **values)
        return str(library)

    yield say
    nvml.library.cache_clear()


def read(library):
    return nvml.read(0, library)


def test_what_it_tells_comes_in_si_units(telling):
    told = read(telling(reasons=0x4 | 0x40 | 0x1, busy=37))
    assert told["name"] == "a GPU" and told["driver"] == "555.55"
    assert told["clock_hz"] == told["most_clock_hz"] == 1.41e9
    assert told["temperature_celsius"] == 61
    assert told["power_limit_watts"] == 400
    assert (told["memory_bytes"], told["memory_of_bytes"]) == (3 * 2**30, 40 * 2**30)
    assert told["busy"] == 0.37
    assert told["slowed_by"] == ["power cap", "hardware thermal slowdown"]
    assert told["held"] == {"power": 1.0, "thermal": 0.0}  # the others are not supported


def test_what_it_does_not_tell_is_none(telling):
    values = telling()
    Path(os.environ["NVML_VALUES"]).write_text("count 1\n")
    told = read(values)
    assert told["slowed_by"] == told["others"] == [] and told["held"] == {}
    assert {told[name] for name in told if name not in ("slowed_by", "others", "held")} == {None}
    assert nvml.joules(0, values) is None


def test_without_a_library_a_driver_or_a_device_there_is_nothing(telling, monkeypatch):
    assert nvml.read(0, "libthere-is-none.so.1") is None
    assert read(telling(count=0)) is None
    nvml.library.cache_clear()
    monkeypatch.delenv("NVML_VALUES")
    assert nvml.library(telling()) is None


def test_two_readings_give_what_came_between(telling):
    values = telling(held_1__2=3 * 10**9, busy__2=100, temperature__2=88)
    seen = nvml.since(read(values), 0, values)
    assert seen["busy_before"] == 0.0 and "busy" not in seen
    assert seen["temperature_celsius"] == 88
    assert seen["slowed_seconds"] == {"power": 0.0, "thermal": 3.0}
    assert nvml.since(seen, 0, "libthere-is-none.so.1") is None


def test_a_device_that_stops_to_be_busy_was_not(telling):
    assert nvml.read_before(0, telling(busy=99, busy__3=0))["busy"] == 0.0


def test_one_that_goes_on_is_as_busy_as_at_its_least(telling):
    assert nvml.read_before(0, telling(busy=99, busy__2=80, busy__3=91))["busy"] == 0.8


def test_a_count_that_began_again_says_nothing(telling):
    values = telling(held_1=3 * 10**9, held_1__2=10**9)
    assert nvml.since(read(values), 0, values)["slowed_seconds"] == {"power": 0.0}


@pytest.mark.parametrize("options", [[], ["-DDRIVER_440"]], ids=["a driver of now", "an old one"])
def test_processes_in_another_folder_are_others(telling, tmp_path, options):
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
def test_a_rank_has_the_device_that_cuda_gives_it(telling, monkeypatch, visible, rank, number):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = nvml.library(telling(count=4, uuid="GPU-1"))
    device = nvml.own(library, rank)
    if number is None:
        assert device is None
    else:
        assert ctypes.cast(device, ctypes.c_void_p).value == number + 1


def test_energy_is_that_of_the_ranks_device(telling, monkeypatch):
    library = telling(energy__2=5_250_000)
    monkeypatch.setattr(nvml.joules, "__defaults__", (library,))
    assert energy.joules(energy.read("cuda"), energy.read("cuda")) == pytest.approx(250.0)
