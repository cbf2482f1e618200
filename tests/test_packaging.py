"""Every way to install: what each puts there works outside the checkout, and nothing is left out.

Distributions are built from a copy of the sources. Dependencies are not installed again: the
fresh environments see those of the interpreter that runs the tests.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE_FOLDERS = PYPROJECT["tool"]["setuptools"]["package-dir"]
NOT_SOURCES = shutil.ignore_patterns(
    *(".git", ".venv", ".*_cache", ".hypothesis", ".benchmarks", "__pycache__", "*.egg-info"),
    *("build", "dist", "benchmark-sets"),
)
WAYS = ["wheel", "sdist", "editable", "pip"]


def packages():
    """Every package by its importable name, and its folder relative to the sources."""
    found = {}
    for name, top in PACKAGE_FOLDERS.items():
        for init in sorted((ROOT / top).rglob("__init__.py")):
            parts = init.parent.relative_to(ROOT / top).parts
            found[".".join((name, *parts))] = init.parent.relative_to(ROOT).as_posix()
    return found


def shipped():
    """Every source file of the packages: its place in an installed one, and in the sources."""
    found = {}
    for package, folder in packages().items():
        for file in sorted((ROOT / folder).iterdir()):
            if file.is_file() and file.suffix != ".pyc" and not file.name.startswith("."):
                found[f"{package.replace('.', '/')}/{file.name}"] = f"{folder}/{file.name}"
    return found


def command(*argv, cwd, **variables):
    """Standard output of a command that must succeed, with none of this session's Python set-up."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "XFBENCH"))
    }
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the checkout, so that building leaves nothing in it and finds nothing stale."""
    copy = tmp_path_factory.mktemp("packaging") / "sources"

    def without(folder, names):
        """Results of somebody's runs stand in the checkout's own folder."""
        mine = {"results"} if Path(folder) == ROOT else set()
        return NOT_SOURCES(folder, names) | mine

    shutil.copytree(ROOT, copy, ignore=without)
    return copy


@pytest.fixture(scope="module")
def distributions(sources):
    """The sdist, and the wheel that is built from it."""
    built = sources.parent / "dist"
    command(
        *(sys.executable, "-m", "build", "--no-isolation", "--outdir", built, sources),
        cwd=sources.parent,
    )
    [sdist], [wheel] = built.glob("*.tar.gz"), built.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory):
    """A folder of links to all that is installed here, but for xfbench and what starts it."""
    folder = tmp_path_factory.mktemp("dependencies")
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(place).iterdir():
            if "xfbench" not in path.name and path.suffix != ".pth":
                (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module", params=WAYS)
def installed(request, sources, dependencies, tmp_path_factory):
    """A fresh virtual environment with xfbench in it: a function that runs a program of it."""
    way, folder = request.param, tmp_path_factory.mktemp(request.param)
    python = folder / "environment" / "bin" / "python"
    uv = [find_uv_bin(), "--quiet", "--no-cache", "--offline"]
    if way == "pip":
        command(sys.executable, "-m", "venv", python.parent.parent, cwd=folder)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        # The setuptools that a Python before 3.12 puts there is older than the one we ask for.
        command(*pip, "uninstall", "--yes", "setuptools", cwd=folder)
        pip += ["install"]
    else:
        command(*uv, "venv", "--python", sys.executable, python.parent.parent, cwd=folder)
        pip = [*uv, "pip", "install", "--python", python]
    [site_packages] = python.parent.parent.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")
    if way in ("sdist", "wheel"):
        what = [request.getfixturevalue("distributions")[way]]
    else:
        what = ["--editable", sources] if way == "editable" else [sources]
    command(*pip, "--no-deps", "--no-build-isolation", *what, cwd=folder)

    def run(program, *arguments, cwd=folder):
        return command(
            python.parent / program, *arguments, cwd=cwd, XFBENCH_HOME=str(folder / "cache")
        )

    run.way, run.sources, run.site_packages = way, sources, site_packages
    return run


def test_the_package_list_is_the_folders():
    listed = PYPROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(packages())
    assert len(listed) == len(set(listed))


def test_every_folder_with_code_is_a_package():
    folders = {
        file.parent.relative_to(ROOT).as_posix()
        for top in PACKAGE_FOLDERS.values()
        for suffix in ("py", "toml")
        for file in (ROOT / top).rglob(f"*.{suffix}")
    }
    assert folders == set(packages().values())


def test_the_wheel_is_the_packages_and_the_licence(distributions):
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        names = wheel.namelist()
        about = [name for name in names if ".dist-info/" in name]
        assert sorted(set(names) - set(about)) == sorted(shipped())
        licence = next(name for name in about if name.endswith("/licenses/LICENSE"))
        assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
        metadata = wheel.read(next(name for name in about if name.endswith("/METADATA"))).decode()
    assert "License-Expression: Apache-2.0" in metadata
    photograph = "xfbench/data/photographs/retina.jpg"
    for name in ("xfbench/py.typed", "xfbench/workloads/digits.npz", photograph):
        assert name in names


def test_the_sdist_has_all_it_takes_to_build_and_test(distributions):
    with tarfile.open(distributions["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    assert {*shipped().values(), *tests, "LICENSE", "README.md", "pyproject.toml"} <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_what_is_imported_is_what_was_installed(installed):
    script = (
        "import xfbench, xfbench.workloads as w; print(xfbench.__file__, w.__file__, sep='\\n')"
    )
    places = [Path(line) for line in installed("python", "-c", script).splitlines()]
    if installed.way == "editable":
        assert places == [
            installed.sources / "xfbench" / "__init__.py",
            installed.sources / "workloads" / "__init__.py",
        ]
    else:
        folder = installed.site_packages / "xfbench"
        assert places == [folder / "__init__.py", folder / "workloads" / "__init__.py"]


def test_the_command_answers(installed):
    assert "Usage: xfbench" in installed("xfbench", "--help")
    workloads = json.loads(installed("xfbench", "workload", "list", "--json"))["workloads"]
    assert {"lenet", "convnet", "caffenet", "alexnet", "googlenet", "resnet50"} <= set(workloads)


def test_every_adapters_worker_can_be_packed_with_all_it_needs(installed):
    script = (
        "import json, zipfile\nfrom xfbench import adapter\n"
        "from xfbench.running import worker_archive\n"
        "pack = worker_archive.worker_archive\n"
        "print(json.dumps({n: zipfile.ZipFile(pack(n)).namelist() for n in adapter.names()}))"
    )
    archives = json.loads(installed("python", "-c", script))
    assert set(archives) == {toml.parent.name for toml in ROOT.glob("adapters/*/adapter.toml")}
    own = {name for name in shipped() if name.startswith(("xfbench/worker/", "xfbench/workloads/"))}
    for adapter, names in archives.items():
        theirs = {name for name in shipped() if name.startswith(f"xfbench/adapters/{adapter}/")}
        assert own | theirs <= set(names)
        assert "xfbench/workloads/digits.npz" in names
        lock = f"xfbench/adapters/{adapter}/requirements.lock"
        assert (lock in names) == (ROOT / "adapters" / adapter / "requirements.lock").is_file()


def test_it_trains_on_the_digits(installed):
    line = "--framework reference --workload lenet --data digits --batch-size 4 --steps 1"
    document = json.loads(
        installed("xfbench", "run", *line.split(), "--launches", "1", "--warmup", "0", "--json")
    )
    assert document["summary"] == {"ok": 1}


def test_its_benchmarks_are_found_by_the_packages_name(installed):
    listing = installed(
        "python", "-m", "pytest", "--pyargs", "xfbench", *"--benchmark-only --co -q".split()
    )
    assert "test_cells.py::test_training[lenet-reference-numpy-cpu-" in listing


@pytest.mark.parametrize("name", sorted(set(PACKAGE_FOLDERS.values()) - {"xfbench"}))
def test_a_top_level_import_in_a_checkout_says_which_name_to_use(installed, name):
    script = f"try:\n import {name}\nexcept ImportError as error:\n print(error)"
    said = installed("python", "-c", script, cwd=installed.sources)
    assert said == f"this package is called xfbench.{name}: import that name instead\n"
