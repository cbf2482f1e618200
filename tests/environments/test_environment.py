"""Environments: made once, whole or not at all, whoever else is making them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import temporary_mounts
from tests.remaining_processes import list_running, wait_for
from xfbench.base import paths
from xfbench.base.errors import UnavailableError, UsageError
from xfbench.environments import environment, installer, inventory
from xfbench.model import adapter


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A function that puts a managed adapter with this lock in a fresh cache; its description."""
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))

    def make(lock):
        folder = tmp_path / "adapters" / "small"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adapter.toml").write_text(
            'name = "small"\ntitle = "Small"\nmodule = "numpy"\ndevices = ["cpu"]\n'
            'precisions = ["float32"]\nstrategies = ["none"]\ndefault_kernel = "plain"\n'
            '[environment]\nkind = "managed"\npython = "3.11"\n[kernels.plain]\ntitle = "plain"\n'
        )
        if lock is not None:
            (folder / "requirements.lock").write_text(lock)
        return adapter.load("small")

    return make


@pytest.fixture
def numpy_lock():
    """NumPy's lines of a lock of ours."""
    lines = (adapter.load("mxnet").folder / "requirements.lock").read_text().split("\n")
    first = next(n for n, line in enumerate(lines) if line.startswith("numpy=="))
    last = next(n for n in range(first, len(lines)) if not lines[n].endswith("\\"))
    return "\n".join(lines[first : last + 1]) + "\n"


def test_environment_has_exactly_the_packages_of_its_lock(small, numpy_lock):
    found = environment.ensure(small(numpy_lock))
    assert found.version == found.packages["numpy"] == numpy_lock.split("==")[1].split()[0]
    assert set(found.packages) == {"numpy"}
    assert environment.find(small(numpy_lock)) == found
    assert found.digest.startswith("sha256:")


def test_concurrent_creation_gives_a_single_environment(small, numpy_lock, tmp_path):
    small(numpy_lock)
    command = [sys.executable, "-m", "xfbench", "env", "create", "small"]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("installing" in errors for _, errors in said) == 1
    made = [p for p in (tmp_path / "home" / "environments").iterdir() if p.is_dir()]
    assert len(made) == 1
    assert environment.find(adapter.load("small")).version


def test_partial_environment_is_never_used(small, numpy_lock, tmp_path):
    described = small(numpy_lock)
    found = environment.ensure(described)
    (found.prefix / "environment.json").unlink()
    shutil.rmtree(found.prefix / "lib")
    assert environment.find(described) is None
    assert environment.ensure(described) == found
    assert (found.prefix / "lib").is_dir()


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        ("numpy==1.23.5 --hash=sha256:" + "0" * 64 + "\n", "hash"),
        (
            "xfbench-no-such==1.0 --hash=sha256:" + "0" * 64 + "\n",
            "xfbench-no-such",
        ),
        ("numpy==1.23.5\n", "hash"),
        (None, "requirements.lock"),
    ],
)
def test_failed_installation_is_unavailable_and_leaves_no_folder(small, lock, words, tmp_path):
    with pytest.raises(UnavailableError) as caught:
        environment.ensure(small(lock))
    assert words in str(caught.value).lower() and "\n" not in str(caught.value)
    assert not [p for p in tmp_path.glob("home/environments/*") if p.is_dir()]


def test_offline_installation_reports_the_missing_network(small, numpy_lock, monkeypatch, tmp_path):
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # it may name packages on this disk
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UnavailableError, match=r"(?i)network|offline"):
        environment.ensure(small(numpy_lock))


def test_removed_environment_is_created_again(small, numpy_lock):
    described = small(numpy_lock)
    environment.ensure(described)
    assert environment.remove(described) and not environment.remove(described)
    assert environment.find(described) is None
    assert environment.ensure(described).version


def test_lock_with_cuda_packages_states_its_size():
    for name in adapter.list_names():
        described = adapter.load(name)
        if described.environment.kind == "managed":
            lock = (described.folder / "requirements.lock").read_text().lower()
            brings = [word for word in ("nvidia", "cuda", "triton") if word in lock]
            assert not brings or described.environment.size, name
    assert not adapter.load("torch").environment.size


def test_worker_inherits_only_variables_on_the_list(monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "77")
    monkeypatch.setenv("LD_PRELOAD", "")
    described = adapter.load("reference")
    variables = environment.ensure(described).variables(described, "numpy", 3)
    assert variables["MKL_NUM_THREADS"] == variables["OPENBLAS_NUM_THREADS"] == "3"
    assert "LD_PRELOAD" not in variables
    assert variables["PATH"] == os.environ["PATH"]
    assert json.dumps(variables)


def test_full_disk_is_reported_and_leaves_no_environment(small, numpy_lock, tmp_path, monkeypatch):
    described = small(numpy_lock)
    with temporary_mounts.tmpfs(tmp_path, "disk", options="size=4m") as disk:
        home = disk / "home"
        monkeypatch.setenv("XFBENCH_HOME", str(home))
        with pytest.raises(UnavailableError, match="No space left on device") as caught:
            environment.ensure(described)
        assert "\n" not in str(caught.value)
        assert not [path for path in home.glob("environments/*") if path.is_dir()]
        temporary_mounts.remount(disk, "size=300m")
        assert environment.ensure(described).version


@pytest.mark.parametrize("damage", ["interpreter", "cut off", "empty", "of another kind"])
def test_damaged_environment_is_created_again(small, numpy_lock, damage):
    described = small(numpy_lock)
    found = environment.ensure(described)
    complete = found.prefix / "environment.json"
    if damage == "interpreter":
        found.interpreter.unlink()
    else:
        text = complete.read_text()
        complete.write_text({"cut off": text[:99], "empty": "", "of another kind": "[]"}[damage])
    assert environment.find(described) is None
    assert environment.existing() == []
    assert environment.ensure(described) == found
    assert found.interpreter.exists()


def test_changed_packages_are_reported_by_name(small, numpy_lock):
    described = small(numpy_lock)
    found = environment.ensure(described)
    [metadata] = found.prefix.glob("lib/python3*/site-packages/numpy-*.dist-info/METADATA")
    text = metadata.read_text()
    metadata.unlink()  # the installer's cache has it too
    metadata.write_text(text.replace(f"Version: {found.version}", "Version: 9.9"))
    words = rf"small: .*numpy was {found.version} and is 9\.9; `xfbench env remove small`"
    with pytest.raises(UnavailableError, match=words):
        environment.ensure(described)
    assert environment.remove(described)
    assert environment.ensure(described) == found


@pytest.fixture
def finished(small):
    """A managed environment with one package, as if it had been made: adapter and packages' folder.

    Nothing is installed: only the files that are looked at.
    """
    described = small("# nothing\n")
    prefix = Path(environment.plan(described).rpartition(": ")[2])
    packages = prefix / "lib" / "python3.11" / "site-packages"
    install(packages, "first", "1.0")
    made = environment.Environment(
        *("small", "managed", Path(sys.executable), prefix, "1.0", "3.11"),
        packages={"first": "1.0"},
        digest="sha256:0",
    )
    document = {**vars(made), "interpreter": sys.executable, "prefix": str(prefix)}
    (prefix / "environment.json").write_text(json.dumps(document))
    return described, packages


def install(folder, name, version):
    """Put the metadata of a package into a folder."""
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_an_environment_with_its_packages_is_used(finished):
    described, _ = finished
    assert environment.ensure(described).packages == {"first": "1.0"}


def test_an_environment_with_an_added_package_is_refused(finished):
    described, packages = finished
    install(packages, "second", "2.0")
    with pytest.raises(UnavailableError, match=r"second was not there and is 2\.0"):
        environment.ensure(described)


def test_an_environment_without_one_of_its_packages_is_refused(finished):
    described, packages = finished
    shutil.rmtree(packages / "first-1.0.dist-info")
    with pytest.raises(UnavailableError, match=r"first was 1\.0 and is gone"):
        environment.ensure(described)


def test_missing_python_version_is_named(small, tmp_path):
    described = small("# nothing\n")
    file = described.folder / "adapter.toml"
    file.write_text(file.read_text().replace('python = "3.11"', 'python = "3.4"'))
    with pytest.raises(UnavailableError, match=r"needs Python 3\.4, and none was found.*--python"):
        environment.ensure(adapter.load("small"))
    assert not [path for path in tmp_path.glob("home/environments/*") if path.is_dir()]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "no reply"),
        ("kill -9 $$", "failed"),
        ("echo '{}' > \"$3\"", "names no job"),
        ("head -c 100000 /dev/zero | tr '\\0' '[' > \"$3\"", "not whole"),
        ('ln -s /dev/zero "$3"', "no reply"),
    ],
)
def test_invalid_interpreter_is_reported_in_one_line(small, tmp_path, script, words):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(UnavailableError, match=words) as caught:
        environment.ensure(small(None), python)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_killed_creator_ends_its_installer(small, numpy_lock, tmp_path, monkeypatch):
    """Who makes it next is alone in the folder."""
    slow = tmp_path / "bin" / "uv"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\necho > "{tmp_path}/begun"\nexec sleep 1000\n')
    slow.chmod(0o755)
    small(numpy_lock)
    script = (
        "from xfbench.model import adapter\n"
        "from xfbench.environments import environment, installer\n"
        f"installer.find_uv_bin = lambda: {str(slow)!r}\n"
        "environment.ensure(adapter.load('small'))\n"
    )
    creator = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path / "bin")
    wait_for((tmp_path / "begun").exists)
    creator.kill()
    creator.wait()
    wait_for(lambda: not list_running(tmp_path / "bin"))
    assert environment.ensure(adapter.load("small")).version


def test_world_writable_cache_is_refused(tmp_path, monkeypatch):
    """What is in it is run."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XFBENCH_HOME", str(home))
    assert paths.cache() == home
    for mode in (0o777, 0o1777, 0o702):
        home.chmod(mode)
        with pytest.raises(UsageError, match=r"writable by all users.*XFBENCH_HOME"):
            environment.ensure(adapter.load("reference"))


def test_cache_of_another_user_is_refused(open_folder):
    """Though it be behind a link of theirs only."""
    if os.geteuid() != 0:
        pytest.skip("giving a folder away, and being another, needs root")
    home, link = open_folder / "home", open_folder / "link"
    home.mkdir()
    link.symlink_to(home)
    script = (
        "import os, sys\n"
        "from xfbench.base import errors, paths\n"
        "os.seteuid(65534)\n"
        "try: print(paths.cache())\n"
        "except errors.UsageError as error: print('refused', error)\n"
    )

    def said(path):
        return subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "XFBENCH_HOME": str(path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    os.chown(home, 65533, -1)
    assert said(home).startswith("refused") and "belongs to another user" in said(home)
    os.chown(home, 65534, -1)
    assert said(home).startswith(str(home))
    os.lchown(link, 65533, -1)
    assert said(link).startswith("refused")


def test_size_of_an_environment_excludes_link_targets(finished, tmp_path):
    _, packages = finished
    [before] = environment.existing()
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 10**6)
    (packages / "file").write_bytes(b"x" * 1000)
    (packages / "link").symlink_to(outside)
    [after] = environment.existing()
    assert after["bytes"] - before["bytes"] == 1000 + len(str(outside))


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("requirements.lock", "# nothing", "# something"),
        ("wheels.lock", "# nothing", "# something"),
        ("adapter.toml", 'python = "3.11"', 'python = "3.12"'),
    ],
)
def test_changed_description_needs_a_new_environment(small, file, old, new):
    folder = small("# nothing\n").folder
    (folder / "wheels.lock").write_text("# nothing\n")
    described = folder / "adapter.toml"
    text = described.read_text().replace("[environment]", '[environment]\nwheels = "wheels.lock"')
    described.write_text(text)
    before = environment.plan(adapter.load("small"))
    assert environment.plan(adapter.load("small")) == before
    changed = folder / file
    changed.write_text(changed.read_text().replace(old, new))
    assert environment.plan(adapter.load("small")) != before


def test_worker_inherits_the_choice_of_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    described = adapter.load("reference")
    variables = environment.ensure(described).variables(described, "numpy", 1)
    assert variables["CUDA_VISIBLE_DEVICES"] == "3"


def test_variables_of_uv_come_before_those_of_pip(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.invalid/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/pip")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.invalid/simple")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    variables = installer._variables()
    assert variables["UV_DEFAULT_INDEX"] == "https://uv.invalid/simple"
    assert variables["UV_FIND_LINKS"] == "/pip"


def state_of_small():
    [found] = [one for one in inventory.frameworks() if one.name == "small"]
    return found.state, found.version


def test_environment_on_disk_is_installed(finished):
    assert state_of_small() == ("installed", "1.0")


@pytest.mark.parametrize(("python", "state"), [("3.11", "available"), ("3.4", "unavailable")])
def test_framework_without_its_python_is_unavailable(small, python, state):
    file = small("# nothing\n").folder / "adapter.toml"
    file.write_text(file.read_text().replace('python = "3.11"', f'python = "{python}"'))
    assert state_of_small() == (state, None)
