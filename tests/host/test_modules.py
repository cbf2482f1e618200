"""Modules captured from a real Lmod: what they set is an environment, what is missing is named."""

import sys

import pytest

from tests.cluster import slurm
from xfbench import adapter
from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.host import modules, sites

INIT = "/usr/share/lmod/lmod/init/bash"


@pytest.fixture(scope="module")
def lmod():
    if reason := slurm.missing():
        pytest.skip(f"no Lmod: {reason}")
    return INIT


@pytest.fixture
def folder(tmp_path):
    """Modules of the test's own: a Python with NumPy, and one that needs another first."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "python3"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    own = tmp_path / "modules"
    for name in ("framework", "compiler"):
        (own / name).mkdir(parents=True)
    (own / "compiler" / "12.lua").write_text('setenv("OF_COMPILER", "twelve")\n')
    (own / "framework" / "1.0.lua").write_text(
        f'prepend_path("PATH", "{tmp_path / "bin"}")\nsetenv("OF_FRAMEWORK", "a b=c")\n'
    )
    return own


def test_modules_are_captured_as_variables(lmod, folder):
    found = modules.load_environment(lmod, (str(folder),), ("compiler/12", "framework"))
    assert found["OF_COMPILER"] == "twelve"
    assert found["OF_FRAMEWORK"] == "a b=c"
    assert modules.find_interpreter(found, "python3") == folder.parent / "bin" / "python3"
    assert not any(name.startswith(("LMOD", "BASH_FUNC", "_ModuleTable")) for name in found)


def test_missing_module_is_reported_with_the_nearest_name(lmod, folder):
    with pytest.raises(UnavailableError, match=r"framewrok/1.0.*did you mean framework/1.0"):
        modules.load_environment(lmod, (str(folder),), ("compiler/12", "framewrok/1.0"))


def test_missing_module_system_error_names_its_setting():
    with pytest.raises(UnavailableError, match=r"modules.init"):
        modules.load_environment("/nowhere/init", (), ("a",))


def test_modules_without_a_python_are_reported(lmod, folder):
    found = modules.load_environment(lmod, (str(folder),), ("compiler/12",))
    with pytest.raises(UnavailableError, match=r"no python3\.99"):
        modules.find_interpreter(found, "python3.99")


def test_framework_from_site_modules_gets_their_variables(lmod, folder, tmp_path, fake_adapter):
    fake_adapter()
    site = tmp_path / "site.toml"
    site.write_text(
        f'title = "s"\n[modules]\ninit = "{lmod}"\npath = ["{folder}"]\n'
        '[modules.frameworks]\nodd = ["compiler/12", "framework/1.0"]\n'
    )
    described = adapter.load("odd")
    assert environment.kind(described, None, str(site)) == "modules"
    found = environment.ensure(described, site=str(site))
    assert found.kind == "modules" and found.version
    assert found.variables(described, "plain", 1)["OF_COMPILER"] == "twelve"
    sites.load.cache_clear()
