"""Environment variables captured from modules of a real Lmod, and errors for missing modules."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import debian
from tests.cluster import slurm
from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.host import modules, sites
from xfbench.model import adapter

INIT = "/usr/share/lmod/lmod/init/bash"


@pytest.fixture(scope="module")
def lmod():
    if reason := slurm.missing_reason():
        debian.skip_test(f"no Lmod: {reason}")
    return INIT


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two modules, a framework with a Python and a compiler."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "python3"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    modules_folder = tmp_path / "modules"
    for name in ("framework", "compiler"):
        (modules_folder / name).mkdir(parents=True)
    (modules_folder / "compiler" / "12.lua").write_text('setenv("OF_COMPILER", "twelve")\n')
    (modules_folder / "framework" / "1.0.lua").write_text(
        f'prepend_path("PATH", "{tmp_path / "bin"}")\nsetenv("OF_FRAMEWORK", "a b=c")\n'
    )
    return modules_folder


def test_modules_are_captured_as_variables(lmod, folder):
    variables = modules.load_variables_changed_by_modules(
        lmod, (str(folder),), ("compiler/12", "framework")
    )
    assert variables["OF_COMPILER"] == "twelve"
    assert variables["OF_FRAMEWORK"] == "a b=c"
    assert modules.find_interpreter(variables, "python3") == folder.parent / "bin" / "python3"
    assert not any(name.startswith(("LMOD", "BASH_FUNC", "_ModuleTable")) for name in variables)


def test_missing_module_is_reported_with_the_nearest_name(lmod, folder):
    with pytest.raises(UnavailableError, match=r"framewrok/1.0.*did you mean framework/1.0"):
        modules.load_variables_changed_by_modules(
            lmod, (str(folder),), ("compiler/12", "framewrok/1.0")
        )


def test_missing_module_system_error_names_its_setting():
    with pytest.raises(UnavailableError, match=r"modules.init"):
        modules.load_variables_changed_by_modules("/nowhere/init", (), ("a",))


def test_modules_without_a_python_are_reported(lmod, folder):
    variables = modules.load_variables_changed_by_modules(lmod, (str(folder),), ("compiler/12",))
    with pytest.raises(UnavailableError, match=r"no python3\.99"):
        modules.find_interpreter(variables, "python3.99")


def test_a_script_that_loads_a_module_is_an_interpreter(lmod, folder, tmp_path):
    """The script of docs/how-to/compare-builds.md."""
    page = (Path(__file__).parents[2] / "docs/how-to/compare-builds.md").read_text()
    script = re.search(r"```bash\n(#!.*?)```", page, re.DOTALL)[1]
    assert "module load pytorch/2.1\n" in script
    python = tmp_path / "python-old"
    python.write_text(
        script.replace("module load pytorch/2.1", f"module use {folder}\nmodule load framework/1.0")
    )
    python.chmod(0o755)
    named = environment.ensure_environment(adapter.load("reference"), python, print, None)
    assert named.interpreter == python
    command = [named.interpreter, "-c", "import os; print(os.environ['OF_FRAMEWORK'])"]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout == "a b=c\n"


def test_framework_from_site_modules_gets_their_variables(lmod, folder, tmp_path, fake_adapter):
    fake_adapter()
    site = tmp_path / "site.toml"
    site.write_text(
        f'title = "s"\n[modules]\ninit = "{lmod}"\npath = ["{folder}"]\n'
        '[modules.frameworks]\nodd = ["compiler/12", "framework/1.0"]\n'
    )
    odd_adapter = adapter.load("odd")
    assert environment.determine_kind(odd_adapter, None, str(site)) == "modules"
    prepared_environment = environment.ensure_environment(odd_adapter, site=str(site))
    assert prepared_environment.kind == "modules" and prepared_environment.version
    assert prepared_environment.variables(odd_adapter, "plain", 1)["OF_COMPILER"] == "twelve"
    sites.load_site.cache_clear()
