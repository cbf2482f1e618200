"""Energy counters, read from files laid out as the kernel's powercap has them."""

import time

import pytest

from xfbench.worker import energy


def write_package(folder, name, microjoules, max_range_microjoules=262_143_328_850):
    package_folder = folder / name
    package_folder.mkdir(parents=True, exist_ok=True)
    (package_folder / "energy_uj").write_text(f"{microjoules}\n")
    (package_folder / "max_energy_range_uj").write_text(f"{max_range_microjoules}\n")


def test_package_energies_add_up_without_their_subzones(tmp_path):
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        write_package(tmp_path, name, 1_000_000)
    before = energy._read_rapl(tmp_path)
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        write_package(tmp_path, name, 3_500_000)
    assert energy.joules_used(before, energy._read_rapl(tmp_path)) == pytest.approx(5.0)


def test_energy_includes_a_counter_wraparound(tmp_path):
    write_package(tmp_path, "intel-rapl:0", 9_000_000, max_range_microjoules=10_000_000)
    before = energy._read_rapl(tmp_path)
    write_package(tmp_path, "intel-rapl:0", 1_000_000, max_range_microjoules=10_000_000)
    assert energy.joules_used(before, energy._read_rapl(tmp_path)) == pytest.approx(2.0)


def test_unreadable_energy_is_none(tmp_path):
    assert energy._read_rapl(tmp_path) == {}
    assert energy.joules_used({}, {}) is None
    assert energy.joules_used({"nvml:0": (5.0, None)}, {"nvml:0": (4.0, None)}) is None
    assert energy.joules_used({"nvml:0": (5.0, None)}, {}) is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert energy._read_rapl(tmp_path) == {}


@pytest.mark.parametrize(("joules", "reading"), [(5.0, {"nvml": (5.0, None)}), (None, {})])
def test_cuda_energy_comes_only_from_nvml(joules, reading, monkeypatch):
    monkeypatch.setattr(energy.nvml, "energy_joules", lambda gpu: joules)
    monkeypatch.setattr(energy, "_read_rapl", lambda: {"package-0": (1.0, 2.0)})
    assert energy.read_counters("cuda", "a GPU") == reading
    assert energy.read_counters("cuda") == {}


def test_meter_counts_only_while_it_runs(monkeypatch):
    joules = iter([0, 10, 100, 130, 1000, 1005, 1005])
    clock = iter([0, 1, 5, 8, 20, 21, 21])
    monkeypatch.setattr(energy, "read_counters", lambda *_: {"package-0": (next(joules), None)})
    meter = energy.EnergyMeter("cpu", None, lambda: next(clock))
    meter.pause()  # 10 J in 1 s
    meter.resume()
    meter.pause()  # 30 J in 3 s
    meter.resume()
    assert meter.read() == (45, 5, {}, 5)


def test_energy_of_an_extended_warmup_is_left_out(monkeypatch):
    """Window 1 ends after the restart: 10 J and 1 s of it turn out to belong to the warm-up."""
    joules = iter([0, 10, 15, 20, 20])
    clock = iter([0, 1, 1, 2, 2, 3, 3])
    monkeypatch.setattr(energy, "read_counters", lambda *_: {"package-0": (next(joules), None)})
    meter = energy.EnergyMeter("cpu", None, lambda: next(clock))
    meter.mark(1)
    meter.mark(2)
    assert meter.read(1) == (10, 2, {}, 3)


def test_energy_is_unknown_without_a_mark_after_the_warmup(monkeypatch):
    clock = iter([0, 0.1, 0.1, 0.1])
    monkeypatch.setattr(energy, "read_counters", lambda *_: {"package-0": (1, None)})
    meter = energy.EnergyMeter("cpu", None, lambda: next(clock))
    meter.mark(1)  # too early: a reading takes time
    assert meter.read(1)[:2] == (None, None)


def test_meter_without_a_counter_has_no_energy(monkeypatch):
    monkeypatch.setattr(energy, "read_counters", lambda *_: {})
    meter = energy.EnergyMeter("cpu", None, time.perf_counter)
    use = meter.read()
    assert use.joules is None and use.seconds >= 0


def test_slowdowns_are_read_only_at_the_start_and_at_the_end(monkeypatch):
    """NVML needs some milliseconds for them, in which the device would wait."""
    readings = []

    def slowed_seconds(gpu):
        readings.append(gpu)
        return {"thermal": float(len(readings))}

    monkeypatch.setattr(energy.nvml, "slowed_seconds", slowed_seconds)
    monkeypatch.setattr(energy, "read_counters", lambda *_: {"nvml": (1.0, None)})
    clock = iter(range(100))
    meter = energy.EnergyMeter("cuda", "a GPU", lambda: next(clock))
    for window in range(1, 9):
        meter.mark(window)
    assert len(readings) == 1
    assert meter.read(1).slowed_seconds == {"thermal": 1.0}
