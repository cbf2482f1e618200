"""Tests of every way to install xfbench: the installation is complete and works.

Distributions are built from a copy of the sources. Fresh environments use the dependencies of the
interpreter that runs the tests.
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
# A wheel in an environment of uv is the usual method; the others differ in few files.
INSTALL_METHODS = [
    "wheel",
    *(pytest.param(method, marks=pytest.mark.deep) for method in ("sdist", "editable", "pip")),
]


def find_packages():
    """Return the folder of each package, relative to the sources, by its importable name."""
    folders = {}
    for name, top in PACKAGE_FOLDERS.items():
        for init in sorted((ROOT / top).rglob("__init__.py")):
            parts = init.parent.relative_to(ROOT / top).parts
            folders[".".join((name, *parts))] = init.parent.relative_to(ROOT).as_posix()
    return folders


def find_package_files():
    """Return the path in the sources of each file of the packages, by its installed path."""
    files = {}
    for package, folder in find_packages().items():
        for file in sorted((ROOT / folder).iterdir()):
            if file.is_file() and file.suffix != ".pyc" and not file.name.startswith("."):
                files[f"{package.replace('.', '/')}/{file.name}"] = f"{folder}/{file.name}"
    return files


def run_command(*argv, cwd, **variables):
    """Run a command without this session's Python variables; return its output.

    Raises AssertionError if it fails.
    """
    variables_to_keep = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "XFBENCH"))
    }
    process = subprocess.run(
        argv,
        cwd=cwd,
        env={**variables_to_keep, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, f"{argv}\n{process.stdout}\n{process.stderr}"
    return process.stdout


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of the checkout, so that a build neither changes it nor uses old build files."""
    copy = tmp_path_factory.mktemp("packaging") / "sources"

    def find_ignored_names(folder, names):
        results = {"results"} if Path(folder) == ROOT else set()
        return NOT_SOURCES(folder, names) | results

    shutil.copytree(ROOT, copy, ignore=find_ignored_names)
    return copy


def build(sources, kind):
    """Build a distribution of this kind; return its file."""
    folder = sources.parent / kind
    run_command(
        *(sys.executable, "-m", "build", "--no-isolation", f"--{kind}"),
        *("--outdir", folder, sources),
        cwd=sources.parent,
    )
    [file] = folder.iterdir()
    return file


@pytest.fixture(scope="session")
def wheel(sources):
    """A wheel that is built from the sources."""
    return build(sources, "wheel")


@pytest.fixture(scope="session")
def sdist(sources):
    """A source distribution."""
    return build(sources, "sdist")


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory):
    """A folder of links to all installed packages except xfbench."""
    folder = tmp_path_factory.mktemp("dependencies")
    for directory in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(directory).iterdir():
            if "xfbench" not in path.name and path.suffix != ".pth":
                (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="session", params=INSTALL_METHODS)
def run_installed(request, sources, dependencies, tmp_path_factory):
    """A function that runs a program of a fresh virtual environment with xfbench."""
    method, folder = request.param, tmp_path_factory.mktemp(request.param)
    python = folder / "environment" / "bin" / "python"
    uv = [find_uv_bin(), "--quiet", "--no-cache", "--offline"]
    if method == "pip":
        run_command(sys.executable, "-m", "venv", python.parent.parent, cwd=folder)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        # Before Python 3.12 a new environment has a setuptools that is too old for the build.
        run_command(*pip, "uninstall", "--yes", "setuptools", cwd=folder)
        pip += ["install"]
    else:
        run_command(*uv, "venv", "--python", sys.executable, python.parent.parent, cwd=folder)
        pip = [*uv, "pip", "install", "--python", python]
    [site_packages] = python.parent.parent.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")
    if method in ("sdist", "wheel"):
        package = [request.getfixturevalue(method)]
    else:
        package = ["--editable", sources] if method == "editable" else [sources]
    run_command(*pip, "--no-deps", "--no-build-isolation", *package, cwd=folder)

    def run(program, *arguments, cwd=folder):
        return run_command(
            python.parent / program, *arguments, cwd=cwd, XFBENCH_HOME=str(folder / "cache")
        )

    run.method, run.sources, run.site_packages = method, sources, site_packages
    return run


def test_package_list_matches_the_folders():
    package_names = PYPROJECT["tool"]["setuptools"]["packages"]
    assert sorted(package_names) == sorted(find_packages())
    assert len(package_names) == len(set(package_names))


def test_every_folder_with_code_is_a_package():
    folders = {
        file.parent.relative_to(ROOT).as_posix()
        for top in PACKAGE_FOLDERS.values()
        for suffix in ("py", "toml")
        for file in (ROOT / top).rglob(f"*.{suffix}")
    }
    assert folders == set(find_packages().values())


def test_wheel_contains_the_packages_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata_files = [name for name in names if ".dist-info/" in name]
        assert sorted(set(names) - set(metadata_files)) == sorted(find_package_files())
        licence = next(name for name in metadata_files if name.endswith("/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        metadata = archive.read(
            next(name for name in metadata_files if name.endswith("/METADATA"))
        ).decode()
    assert "License-Expression: Apache-2.0" in metadata
    photograph = "xfbench/datasets/photographs/retina.jpg"
    for name in ("xfbench/py.typed", "xfbench/workloads/digits.npz", photograph):
        assert name in names


@pytest.mark.deep
def test_the_sdist_has_packages_and_tests(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    assert {
        *find_package_files().values(),
        *tests,
        "LICENSE",
        "README.md",
        "pyproject.toml",
    } <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_installed_package_is_imported(run_installed):
    script = (
        "import xfbench, xfbench.workloads as w; print(xfbench.__file__, w.__file__, sep='\\n')"
    )
    module_files = [Path(line) for line in run_installed("python", "-c", script).splitlines()]
    if run_installed.method == "editable":
        assert module_files == [
            run_installed.sources / "xfbench" / "__init__.py",
            run_installed.sources / "workloads" / "__init__.py",
        ]
    else:
        folder = run_installed.site_packages / "xfbench"
        assert module_files == [folder / "__init__.py", folder / "workloads" / "__init__.py"]
        files = {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        relative = {path.relative_to(run_installed.site_packages).as_posix() for path in files}
        assert relative == set(find_package_files())


def test_command_line_works_after_installation(run_installed):
    assert "Usage: xfbench" in run_installed("xfbench", "--help")
    workloads = json.loads(run_installed("xfbench", "workload", "list", "--json"))["workloads"]
    assert {"lenet", "convnet", "caffenet", "alexnet", "googlenet", "resnet50"} <= set(workloads)


def test_a_worker_archive_has_the_files_of_its_adapter(run_installed):
    script = (
        "import json, zipfile\nfrom xfbench.model import adapter\n"
        "from xfbench.environments import worker_archive\n"
        "pack = worker_archive.ensure_worker_archive\n"
        "print(json.dumps({n: zipfile.ZipFile(pack(n)).namelist() for n in adapter.list_names()}))"
    )
    archives = json.loads(run_installed("python", "-c", script))
    assert set(archives) == {toml.parent.name for toml in ROOT.glob("adapters/*/adapter.toml")}
    worker_files = {
        name
        for name in find_package_files()
        if name.startswith(("xfbench/worker/", "xfbench/workloads/"))
    }
    for adapter, names in archives.items():
        adapter_files = {
            name for name in find_package_files() if name.startswith(f"xfbench/adapters/{adapter}/")
        }
        assert worker_files | adapter_files <= set(names)
        assert "xfbench/workloads/digits.npz" in names
        lock = f"xfbench/adapters/{adapter}/requirements.lock"
        assert (lock in names) == (ROOT / "adapters" / adapter / "requirements.lock").is_file()


def test_an_installed_xfbench_trains_on_the_digits(run_installed):
    line = (
        "--framework reference --workload lenet --data digits --batch-size 4 --steps 1 --no-verify"
    )
    document = json.loads(
        run_installed("xfbench", "run", *line.split(), "--launches", "1", "--warmup", "0", "--json")
    )
    assert document["summary"] == {"ok": 1}


def test_pytest_finds_the_benchmarks_by_package_name(run_installed):
    listing = run_installed(
        "python", "-m", "pytest", "--pyargs", "xfbench", *"--benchmark-only --co -q".split()
    )
    assert "test_cells.py::test_training[lenet-reference-numpy-cpu-" in listing


def test_an_import_by_folder_name_says_the_right_name(run_installed):
    for name in sorted(set(PACKAGE_FOLDERS.values()) - {"xfbench"}):
        script = f"try:\n import {name}\nexcept ImportError as error:\n print(error)"
        message = run_installed("python", "-c", script, cwd=run_installed.sources)
        assert message == f"import this package as xfbench.{name}\n"
