"""Installation from a lock: only wheels with its hashes, and one package index at a time."""

import hashlib
import io
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from xfbench.base.processes import CommandError
from xfbench.environments import installer
from xfbench.model import adapter

pytestmark = pytest.mark.deep  # each starts pip and uv
ROOT = Path(__file__).parents[2]
ADAPTER = (
    'name = "small"\ntitle = "Small"\nmodule = "demo"\ndevices = ["cpu"]\n'
    'precisions = ["float32"]\nstrategies = ["none"]\ndefault_kernel = "plain"\n'
    '[environment]\nkind = "managed"\npython = "3.11"\n[kernels.plain]\ntitle = "plain"\n'
)


@pytest.fixture
def write_index(tmp_path):
    """A function that writes an index with one wheel of `demo`; returns its address and a lock."""

    def write(name, version):
        folder = tmp_path / name
        (folder / "demo").mkdir(parents=True)
        wheel = f"demo-{version}-py3-none-any.whl"
        info = f"demo-{version}.dist-info"
        with zipfile.ZipFile(folder / "demo" / wheel, "w") as archive:
            archive.writestr("demo.py", f"__version__ = {version!r}\nPLACE = {name!r}\n")
            archive.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n"
            )
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", f"demo.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
        digest = hashlib.sha256((folder / "demo" / wheel).read_bytes()).hexdigest()
        (folder / "demo" / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
        lock = tmp_path / f"{name}.lock"
        lock.write_text(f"demo=={version} --hash=sha256:{digest}\n")
        return folder.as_uri(), lock

    return write


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that installs a lock from the indexes, the last of which is the default one.

    It returns the text of the module that was installed.
    """
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_EXTRA", "PIP_FIND", "PIP_INDEX")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "adapter.toml").write_text(ADAPTER)
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path))

    def run(lock, *indexes):
        monkeypatch.setenv("UV_DEFAULT_INDEX", indexes[-1])
        monkeypatch.setenv("UV_INDEX", " ".join(indexes[:-1]))
        folder = tmp_path / "environment"
        installer.create_virtual_environment(adapter.load("small"), folder, lock, lambda _: None)
        [module] = folder.glob("lib/python*/site-packages/demo.py")
        return module.read_text()

    return run


def test_package_comes_from_the_first_index_that_has_it(write_index, install):
    (first, lock), (default, _) = write_index("first", "1.0"), write_index("default", "1.0")
    assert "PLACE = 'first'" in install(lock, first, default)


def test_default_index_alone_is_asked_if_an_extra_one_lacks_the_locked_file(write_index, install):
    (first, _), (default, lock) = write_index("first", "9.0"), write_index("default", "1.0")
    assert "PLACE = 'default'" in install(lock, first, default)


def test_indexes_are_not_mixed_even_if_the_user_wants_it(write_index, install, monkeypatch):
    monkeypatch.setenv("UV_INDEX_STRATEGY", "unsafe-best-match")
    (first, _), (second, lock) = write_index("first", "9.0"), write_index("second", "1.0")
    (default, _) = write_index("default", "8.0")
    with pytest.raises(CommandError, match="demo"):
        install(lock, first, second, default)


@pytest.mark.parametrize("variable", [None, "UV_NO_VERIFY_HASHES"])
def test_file_with_another_hash_is_refused(write_index, install, monkeypatch, variable):
    if variable:
        monkeypatch.setenv(variable, "1")
    (_, lock), (default, _) = write_index("honest", "1.0"), write_index("default", "1.0")
    with pytest.raises(CommandError, match=r"(?i)hash"):
        install(lock, default)


def test_package_without_a_wheel_is_refused_and_not_built(run_inline, tmp_path, monkeypatch):
    """Its build would run code, and take what no lock names."""
    marker = tmp_path / "built"
    files = {
        "setup.py": f"open({str(marker)!r}, 'w'); from setuptools import setup; setup()",
        "setup.cfg": "[metadata]\nname = demo\nversion = 1.0\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    }
    links = tmp_path / "links"
    links.mkdir()
    with tarfile.open(links / "demo-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"demo-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    digest = hashlib.sha256((links / "demo-1.0.tar.gz").read_bytes()).hexdigest()
    folder = tmp_path / "adapters" / "small"
    folder.mkdir(parents=True)
    (folder / "adapter.toml").write_text(ADAPTER)
    (folder / "requirements.lock").write_text(f"demo==1.0 --hash=sha256:{digest}\n")
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))

    process = run_inline("env", "create", "small")
    assert process.returncode == 1 and not marker.exists()
    assert "demo==1.0" in process.stderr and "wheel" in process.stderr
    assert not any(path.is_dir() for path in (tmp_path / "home" / "environments").iterdir())


@pytest.mark.parametrize(
    ("target", "lock"), [("installed", "xfbench"), ("developed", "development")]
)
def test_makefile_installs_only_wheels_of_its_locks(target, lock):
    """Pip has no settings of its own here: what is not in the lock is not installed."""
    command = ["make", "--no-print-directory", "-n", "-B", f".venv/{target}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    installs = [
        line.split(" install ")[1] for line in process.stdout.splitlines() if " install " in line
    ]
    quiet = "--quiet --disable-pip-version-check"
    assert installs[-2:] == [
        f"{quiet} --require-hashes --only-binary :all: --requirement requirements/{lock}.lock",
        f"{quiet} --no-deps --no-build-isolation --editable .",
    ]


def test_makefile_pins_by_date_and_keeps_the_versions_of_its_locks():
    """Otherwise, the locks would change whenever somebody uploads a file."""

    def list_commands(*settings):
        command = ["make", "--no-print-directory", "-n", "-o", ".venv/developed", "locks"]
        process = subprocess.run(
            [*command, *settings], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return process.stdout.splitlines()

    for lock, line in zip(("xfbench", "development"), list_commands(), strict=True):
        assert re.search(r" --exclude-newer \d{4}-\d\d-\d\d ", line) and "--upgrade" not in line
        assert f"--output-file requirements/{lock}.lock" in line
    assert all(" --upgrade " in line for line in list_commands("UPGRADE=--upgrade"))
