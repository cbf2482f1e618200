"""Findings about the machine, each just below and just above its limit.

The tests simulate the system's answers because they must not change clocks, disks or swap.
"""

import shutil
from types import SimpleNamespace

import pytest

from tests import nvml as fake_nvml
from xfbench.host import doctor, machine
from xfbench.worker import nvml

INTEL_NO_TURBO = "/sys/devices/system/cpu/intel_pstate/no_turbo"
CPUFREQ_BOOST = "/sys/devices/system/cpu/cpufreq/boost"
HERE = machine.describe_machine()


@pytest.fixture
def turbo(tmp_path, monkeypatch):
    """Return a function that returns the turbo finding on a system with these files."""
    monkeypatch.setattr(doctor, "Path", lambda name: tmp_path / name.lstrip("/"))

    def examine(files):
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True)
            path.write_text(text)
        return doctor._check_turbo()

    return examine


@pytest.mark.parametrize(
    ("file", "on", "off"), [(INTEL_NO_TURBO, "0\n", "1\n"), (CPUFREQ_BOOST, "1\n", "0\n")]
)
def test_enabled_turbo_is_a_warning_with_the_command_for_off(turbo, file, on, off):
    finding = turbo({file: on})
    assert finding.state == "warn"
    assert finding.mend.endswith(f"echo {off.strip()} > {file}")


@pytest.mark.parametrize(("file", "off"), [(INTEL_NO_TURBO, "1\n"), (CPUFREQ_BOOST, "0\n")])
def test_disabled_turbo_is_ok(turbo, file, off):
    finding = turbo({file: off})
    assert (finding.state, finding.detail) == ("ok", "off")


def test_invisible_turbo_state_is_ok(turbo):
    finding = turbo({})
    assert (finding.state, finding.detail) == ("ok", "not visible")


@pytest.mark.parametrize(("load", "state"), [(1.19, "ok"), (1.21, "warn")])
def test_load_is_a_warning_beyond_three_tenths_of_all_cores(monkeypatch, load, state):
    monkeypatch.setattr(doctor.machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert doctor.check_load().state == state


@pytest.mark.parametrize(("cores_percent", "state"), [(10.0, "ok"), (10.1, "warn")])
def test_busy_cores_without_a_busy_process_are_a_warning(monkeypatch, cores_percent, state):
    monkeypatch.setattr(doctor.psutil, "process_iter", lambda fields: iter(()))
    monkeypatch.setattr(doctor.psutil, "cpu_percent", lambda seconds: cores_percent)
    monkeypatch.setattr(doctor.psutil, "cpu_count", lambda: 4)
    [finding] = doctor._check_busy_processes()
    assert finding.state == state
    assert ("end quickly" in finding.detail) == (state == "warn")


@pytest.mark.parametrize(("percent", "state"), [(1.0, "ok"), (1.1, "warn")])
def test_steal_is_a_warning_beyond_one_percent(monkeypatch, percent, state):
    times = SimpleNamespace(steal=percent)
    monkeypatch.setattr(doctor.psutil, "cpu_times_percent", lambda seconds: times)
    assert doctor._check_steal().state == state


@pytest.mark.parametrize(
    ("governor", "state"), [(None, "ok"), ("performance", "ok"), ("powersave", "warn")]
)
def test_a_governor_other_than_performance_is_a_warning(monkeypatch, governor, state):
    machine_facts = HERE.model_copy(update={"governor": governor})
    monkeypatch.setattr(doctor.machine, "describe_machine", lambda: machine_facts)
    assert doctor._check_governor().state == state


@pytest.mark.parametrize(("cpus", "state"), [(None, "ok"), (4.0, "ok"), (3.5, "warn")])
def test_cpu_limit_below_the_affinity_is_a_warning(monkeypatch, cpus, state):
    machine_facts = HERE.model_copy(update={"cgroup_cpus": cpus})
    monkeypatch.setattr(doctor.machine, "describe_machine", lambda: machine_facts)
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert doctor._check_cgroup_cpus().state == state


@pytest.mark.parametrize(("used", "state"), [(10**7, "ok"), (10**7 + 1, "warn")])
def test_swap_is_a_warning_beyond_one_percent_of_memory(monkeypatch, used, state):
    memory = SimpleNamespace(total=10**9, available=5 * 10**8)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(doctor.psutil, "swap_memory", lambda: SimpleNamespace(used=used))
    assert doctor._check_swap().state == state


@pytest.mark.parametrize(("free", "state"), [(10**9, "ok"), (10**9 - 1, "bad")])
def test_less_than_a_gigabyte_of_disk_is_bad(monkeypatch, free, state):
    usage = SimpleNamespace(free=free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    assert doctor._check_free_disk().state == state


@pytest.mark.parametrize(("names", "states"), [([], []), (["a"], ["ok"])])
def test_gpu_is_examined_only_if_present(monkeypatch, names, states):
    monkeypatch.setattr(doctor.machine, "list_accelerator_models", lambda: names)
    monkeypatch.setattr(doctor.machine, "list_accelerator_processes", lambda: [])
    assert [finding.state for finding in doctor._check_accelerators()] == states


def test_a_gpu_that_another_process_uses_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor.machine, "list_accelerator_models", lambda: ["a"])
    monkeypatch.setattr(doctor.machine, "list_accelerator_processes", lambda: ["python3"])
    [finding] = doctor._check_accelerators()
    assert (finding.state, finding.detail) == ("warn", "in use by python3")


SETTINGS = {"persistence": 1, "mig": 0, "ecc": 1, "compute_mode": 0, "application_clock": 1410}
ALL_FINE = "persistence mode on, MIG off, ECC on, compute mode default"


@pytest.mark.parametrize(
    ("values", "state", "details"),
    [
        ({}, "ok", [f"1 GPU: {ALL_FINE}"]),
        ({"application_clock": 1095}, "ok", [f"1 GPU: {ALL_FINE}, clock set to 1095 MHz of 1410"]),
        ({"persistence": 0}, "warn", ["persistence mode off"]),
        ({"mig": 1, "mig_uuids": "MIG-5"}, "warn", ["MIG on"]),
        ({"compute_mode": 3}, "ok", ["compute mode exclusive process"]),
        ({"compute_mode": 2}, "bad", ["compute mode prohibited"]),
        # Only the first device of the fake library has a MIG mode.
        (
            {"count": 3},
            "ok",
            [f"1 GPU: {ALL_FINE}", "2 GPUs: persistence mode on, ECC on, compute mode default"],
        ),
        (dict.fromkeys(SETTINGS), "ok", ["1 GPU: the driver reports no settings"]),
        ({"count": 0}, "", []),
    ],
)
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_gpu_settings_are_judged(tmp_path, monkeypatch, values, state, details):
    file = tmp_path / "values"
    monkeypatch.setenv("NVML_VALUES", str(file))
    chosen = {**SETTINGS, **values}
    fake_nvml.write_device(file, **{name: v for name, v in chosen.items() if v is not None})
    findings = doctor.check_gpu_settings(str(fake_nvml.build(tmp_path)))
    nvml.load_library.cache_clear()
    assert {finding.state for finding in findings} == ({state} if details else set())
    assert all(finding.mend for finding in findings) == (state != "ok")
    for finding, detail in zip(findings, details, strict=True):
        assert finding.detail.endswith(detail) if ":" in detail else detail in finding.detail


def test_gpu_settings_are_not_judged_without_nvml():
    assert doctor.check_gpu_settings("libthere-is-none.so.1") == []


@pytest.mark.parametrize("state", ["warn", "bad"])
def test_strict_refuses_any_finding_that_is_not_ok(monkeypatch, state):
    findings = [doctor.Finding("a", "ok", "quiet"), doctor.Finding("b", state, "why", "mend")]
    monkeypatch.setattr(doctor, "run_all_checks", lambda: findings)
    with pytest.raises(doctor.NoisyError, match=r"\(--strict\): b: why: mend$"):
        doctor.require_all_checks_ok()
    monkeypatch.setattr(doctor, "run_all_checks", lambda: findings[:1])
    doctor.require_all_checks_ok()
