"""Findings about the machine, each just below and just above its limit.

The tests simulate the system's answers because they must not change clocks, disks or swap.
"""

from types import SimpleNamespace

import pytest

from xfbench.host import doctor, machine

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


@pytest.mark.parametrize("state", ["warn", "bad"])
def test_strict_refuses_any_finding_that_is_not_ok(monkeypatch, state):
    findings = [doctor.Finding("a", "ok", "quiet"), doctor.Finding("b", state, "why", "mend")]
    monkeypatch.setattr(doctor, "run_all_checks", lambda: findings)
    with pytest.raises(doctor.NoisyError, match=r"\(--strict\): b: why: mend$"):
        doctor.require_all_checks_ok()
    monkeypatch.setattr(doctor, "run_all_checks", lambda: findings[:1])
    doctor.require_all_checks_ok()
