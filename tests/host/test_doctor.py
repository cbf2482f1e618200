"""Findings about the processor's clock, from files that stand for those of the system."""

import pytest

from xfbench.host import doctor

INTEL = "/sys/devices/system/cpu/intel_pstate/no_turbo"
OTHER = "/sys/devices/system/cpu/cpufreq/boost"


@pytest.fixture
def turbo(tmp_path, monkeypatch):
    """A function: the turbo finding on a system with these files."""
    # No machine has both files, and a test may not change the clock of this one.
    monkeypatch.setattr(doctor, "Path", lambda name: tmp_path / name.lstrip("/"))

    def examine(files):
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True)
            path.write_text(text)
        return doctor._turbo()

    return examine


@pytest.mark.parametrize(("file", "on", "off"), [(INTEL, "0\n", "1\n"), (OTHER, "1\n", "0\n")])
def test_turbo_that_is_on_is_a_warning_with_the_command_for_off(turbo, file, on, off):
    finding = turbo({file: on})
    assert finding.state == "warn"
    assert finding.mend.endswith(f"echo {off.strip()} > {file}")


@pytest.mark.parametrize(("file", "off"), [(INTEL, "1\n"), (OTHER, "0\n")])
def test_turbo_that_is_off_is_good(turbo, file, off):
    finding = turbo({file: off})
    assert (finding.state, finding.detail) == ("ok", "off")


def test_turbo_that_the_system_does_not_show_is_good(turbo):
    finding = turbo({})
    assert (finding.state, finding.detail) == ("ok", "not visible")
