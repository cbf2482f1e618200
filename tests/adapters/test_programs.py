"""JAX loads the programs that an earlier process compiled, where the adapter says so."""

import shutil

import pytest

from tests import fake_framework
from xfbench.base import paths
from xfbench.model import adapter


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The folder of kept programs, where JAX's adapter keeps programs for CPUs too."""
    folder = tmp_path / "adapters" / "jax"
    shutil.copytree(adapter.load("jax").folder, folder)
    file = folder / "adapter.toml"
    text = file.read_text()
    file.write_text(text.replace('keeps_programs = ["cuda"]', 'keeps_programs = ["cpu"]'))
    assert file.read_text() != text
    environments = paths.cache() / "environments"
    home = fake_framework.make_cache(tmp_path / "home")
    (home / "environments").symlink_to(environments)
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))
    monkeypatch.setenv("XFBENCH_HOME", str(home))
    return home / "programs"


def test_second_process_loads_the_program_of_the_first(launch_real, programs):
    first, second = (
        launch_real("jax", workload=["lenet"], batch_size=[4], steps=2) for _ in range(2)
    )
    assert [record.status for record in (first, second)] == ["ok", "ok"], second.reason
    assert first.observed.step_program == "compiled"
    assert second.observed.step_program == "loaded"
    for record in (first, second):
        assert 0 < record.observed.step_program_seconds < record.measurement.first_step_seconds
    assert second.observed.kernel_evidence == first.observed.kernel_evidence
    assert second.measurement.losses == first.measurement.losses
    [folder] = programs.iterdir()
    assert folder.name.startswith("jax-")
    assert any("train" in file.name for file in folder.iterdir())


def test_no_program_for_cpus_is_kept(launch_real):
    programs = paths.cache() / "programs"
    before = sorted(programs.rglob("*"))
    record = launch_real("jax", workload=["lenet"], batch_size=[4], steps=2)
    assert record.observed.step_program == "compiled"
    assert sorted(programs.rglob("*")) == before
