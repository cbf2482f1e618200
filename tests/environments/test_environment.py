"""Environments: created once, completely or not at all, also by concurrent processes."""

import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import temporary_mounts
from tests.remaining_processes import list_running, wait_for
from xfbench.base import paths
from xfbench.base.errors import UnavailableError, UsageError
from xfbench.environments import environment, installer, inventory
from xfbench.model import adapter


@pytest.fixture
def write_adapter(tmp_path, monkeypatch):
    """Return a function that writes a managed adapter with a lock and returns its description."""
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XFBENCH_ADAPTERS", str(tmp_path / "adapters"))

    def write_description(lock):
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

    return write_description


@pytest.fixture
def numpy_lock():
    """Return NumPy's lines of the MXNet adapter's lock."""
    lines = (adapter.load("mxnet").folder / "requirements.lock").read_text().split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("numpy=="))
    end = next(number for number in range(start, len(lines)) if not lines[number].endswith("\\"))
    return "\n".join(lines[start : end + 1]) + "\n"


def test_environment_has_exactly_the_packages_of_its_lock(write_adapter, numpy_lock):
    created = environment.ensure_environment(write_adapter(numpy_lock))
    assert created.version == created.packages["numpy"] == numpy_lock.split("==")[1].split()[0]
    assert set(created.packages) == {"numpy"}
    assert environment.find_environment(write_adapter(numpy_lock)) == created
    assert created.digest.startswith("sha256:")


def test_concurrent_creation_gives_a_single_environment(write_adapter, numpy_lock, tmp_path):
    write_adapter(numpy_lock)
    command = [sys.executable, "-m", "xfbench", "env", "create", "small"]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert sum("installing" in errors for _, errors in outputs) == 1
    folders = [path for path in (tmp_path / "home" / "environments").iterdir() if path.is_dir()]
    assert len(folders) == 1
    assert environment.find_environment(adapter.load("small")).version


def test_partial_environment_is_never_used(write_adapter, numpy_lock, tmp_path):
    description = write_adapter(numpy_lock)
    created = environment.ensure_environment(description)
    (created.prefix / "environment.json").unlink()
    shutil.rmtree(created.prefix / "lib")
    assert environment.find_environment(description) is None
    assert environment.ensure_environment(description) == created
    assert (created.prefix / "lib").is_dir()


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
def test_failed_installation_is_unavailable_and_leaves_no_folder(
    write_adapter, lock, words, tmp_path
):
    with pytest.raises(UnavailableError) as caught:
        environment.ensure_environment(write_adapter(lock))
    assert words in str(caught.value).lower() and "\n" not in str(caught.value)
    assert not [path for path in tmp_path.glob("home/environments/*") if path.is_dir()]


def test_offline_installation_reports_the_missing_network(
    write_adapter, numpy_lock, monkeypatch, tmp_path
):
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # it may name local packages
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UnavailableError, match=r"(?i)network|offline"):
        environment.ensure_environment(write_adapter(numpy_lock))


def test_removed_environment_is_created_again(write_adapter, numpy_lock):
    """An environment of a framework whose name begins alike stays."""
    description = write_adapter(numpy_lock)
    folder = environment.ensure_environment(description).prefix
    other_folder = folder.with_name(f"{description.name}-nightly-{'0' * 12}")
    other_folder.mkdir()
    programs = environment.compiled_programs_folder()
    for name in (description.name, "other"):
        (programs / f"{name}-{'0' * 12}").mkdir(parents=True)
    assert environment.remove_all_environments(
        description
    ) and not environment.remove_all_environments(description)
    assert other_folder.exists() and not folder.exists()
    assert [path.name for path in programs.iterdir()] == [f"other-{'0' * 12}"]
    assert environment.find_environment(description) is None
    assert environment.ensure_environment(description).version


def test_lock_with_cuda_packages_states_its_size():
    for name in adapter.list_names():
        description = adapter.load(name)
        if description.environment.kind == "managed":
            lock = (description.folder / "requirements.lock").read_text().lower()
            gpu_packages = [word for word in ("nvidia", "cuda", "triton") if word in lock]
            assert not gpu_packages or description.environment.size, name
    assert not adapter.load("torch").environment.size


def test_worker_inherits_only_variables_on_the_list(monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "77")
    monkeypatch.setenv("LD_PRELOAD", "")
    description = adapter.load("reference")
    variables = environment.ensure_environment(description).variables(description, "numpy", 3)
    assert variables["MKL_NUM_THREADS"] == variables["OPENBLAS_NUM_THREADS"] == "3"
    assert "LD_PRELOAD" not in variables
    assert variables["PATH"] == os.environ["PATH"]
    assert json.dumps(variables)


def test_full_disk_is_reported_and_leaves_no_environment(
    write_adapter, numpy_lock, tmp_path, monkeypatch
):
    description = write_adapter(numpy_lock)
    with temporary_mounts.tmpfs(tmp_path, "disk", options="size=4m") as disk:
        home = disk / "home"
        monkeypatch.setenv("XFBENCH_HOME", str(home))
        with pytest.raises(UnavailableError, match="No space left on device") as caught:
            environment.ensure_environment(description)
        assert "\n" not in str(caught.value)
        assert not [path for path in home.glob("environments/*") if path.is_dir()]
        temporary_mounts.remount(disk, "size=300m")
        assert environment.ensure_environment(description).version


@pytest.mark.parametrize("damage", ["interpreter", "truncated", "empty", "wrong type"])
def test_damaged_environment_is_created_again(write_adapter, numpy_lock, damage):
    description = write_adapter(numpy_lock)
    created = environment.ensure_environment(description)
    environment_file = created.prefix / "environment.json"
    if damage == "interpreter":
        created.interpreter.unlink()
    else:
        text = environment_file.read_text()
        environment_file.write_text(
            {"truncated": text[:99], "empty": "", "wrong type": "[]"}[damage]
        )
    assert environment.find_environment(description) is None
    assert environment.describe_existing_environments() == []
    assert environment.ensure_environment(description) == created
    assert created.interpreter.exists()


def test_changed_packages_are_reported_by_name(write_adapter, numpy_lock):
    description = write_adapter(numpy_lock)
    created = environment.ensure_environment(description)
    [metadata] = created.prefix.glob("lib/python3*/site-packages/numpy-*.dist-info/METADATA")
    text = metadata.read_text()
    metadata.unlink()  # a hard link to the installer's cache
    metadata.write_text(text.replace(f"Version: {created.version}", "Version: 9.9"))
    words = rf"small: .*numpy was {created.version} and is now 9\.9; run `xfbench env remove small`"
    with pytest.raises(UnavailableError, match=words):
        environment.ensure_environment(description)
    assert environment.remove_all_environments(description)
    assert environment.ensure_environment(description) == created


@pytest.fixture
def built_environment(write_adapter):
    """Return an adapter and the package folder of its managed environment with one package.

    Nothing is installed; only the files that xfbench reads exist.
    """
    description = write_adapter("# nothing\n")
    prefix = Path(environment.describe_kind_state_and_folder(description).rpartition(": ")[2])
    packages = prefix / "lib" / "python3.11" / "site-packages"
    add_package(packages, "first", "1.0")
    built = environment.Environment(
        *("small", "managed", Path(sys.executable), prefix, "1.0", "3.11"),
        packages={"first": "1.0"},
        digest="sha256:0",
    )
    document = {**vars(built), "interpreter": sys.executable, "prefix": str(prefix)}
    (prefix / "environment.json").write_text(json.dumps(document))
    return description, packages


def add_package(folder, name, version):
    """Put the metadata of a package into a folder."""
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_an_environment_with_its_packages_is_used(built_environment):
    description, _ = built_environment
    assert environment.ensure_environment(description).packages == {"first": "1.0"}


def test_an_environment_with_an_added_package_is_refused(built_environment):
    description, packages = built_environment
    add_package(packages, "second", "2.0")
    with pytest.raises(UnavailableError, match=r"second was missing and is now 2\.0"):
        environment.ensure_environment(description)


def test_an_environment_without_one_of_its_packages_is_refused(built_environment):
    description, packages = built_environment
    shutil.rmtree(packages / "first-1.0.dist-info")
    with pytest.raises(UnavailableError, match=r"first was 1\.0 and is now missing"):
        environment.ensure_environment(description)


def test_missing_python_version_is_named(write_adapter, tmp_path):
    description = write_adapter("# nothing\n")
    file = description.folder / "adapter.toml"
    file.write_text(file.read_text().replace('python = "3.11"', 'python = "3.4"'))
    with pytest.raises(UnavailableError, match=r"needs Python 3\.4, but none was found.*--python"):
        environment.ensure_environment(adapter.load("small"))
    assert not [path for path in tmp_path.glob("home/environments/*") if path.is_dir()]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "no reply"),
        ("kill -9 $$", "failed"),
        ("echo '{}' > \"$3\"", "it has no job"),
        ("head -c 100000 /dev/zero | tr '\\0' '[' > \"$3\"", "malformed"),
        ('ln -s /dev/zero "$3"', "no reply"),
    ],
)
def test_invalid_interpreter_is_reported_in_one_line(write_adapter, tmp_path, script, words):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(UnavailableError, match=words) as caught:
        environment.ensure_environment(write_adapter(None), python)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_killed_creator_ends_its_installer(write_adapter, numpy_lock, tmp_path, monkeypatch):
    """The next creator has the folder to itself."""
    slow_uv = tmp_path / "bin" / "uv"
    slow_uv.parent.mkdir()
    slow_uv.write_text(f'#!/bin/sh\ncd "{slow_uv.parent}"\necho > ../begun\nexec sleep 1000\n')
    slow_uv.chmod(0o755)
    write_adapter(numpy_lock)
    script = (
        "from xfbench.model import adapter\n"
        "from xfbench.environments import environment, installer\n"
        f"installer.find_uv_bin = lambda: {str(slow_uv)!r}\n"
        "environment.ensure_environment(adapter.load('small'))\n"
    )
    creator = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path / "bin")
    wait_for((tmp_path / "begun").exists)
    creator.kill()
    creator.wait()
    wait_for(lambda: not list_running(tmp_path / "bin"))
    assert environment.ensure_environment(adapter.load("small")).version


def test_uv_ignores_what_lies_in_the_working_folder(tmp_path, monkeypatch):
    """It may belong to others, as `/tmp` does."""
    version = adapter.load("torch").environment.python
    planted = tmp_path / ".venv" / "bin" / "python"
    planted.parent.mkdir(parents=True)
    (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"version = {version}.0\n")
    planted.write_text(f'#!/bin/sh\ntouch "{tmp_path}/run"\n')
    planted.chmod(0o755)
    (tmp_path / "uv.toml").write_text("this is not TOML\n")
    monkeypatch.chdir(tmp_path)
    assert inventory._find_creation_obstacle(adapter.load("torch")) is None
    assert not (tmp_path / "run").exists()


def test_world_writable_cache_is_refused(tmp_path, monkeypatch):
    """The cache holds programs that xfbench runs."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XFBENCH_HOME", str(home))
    assert paths.cache() == home
    for mode in (0o777, 0o1777, 0o702):
        home.chmod(mode)
        with pytest.raises(UsageError, match=r"writable by all users.*XFBENCH_HOME"):
            environment.ensure_environment(adapter.load("reference"))


def test_group_writable_cache_is_refused(tmp_path, monkeypatch):
    """Unless the group is the user's own, as on systems that give each user one."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o775)
    monkeypatch.setenv("XFBENCH_HOME", str(home))
    user, private_group = pwd.getpwuid(os.geteuid()), grp.getgrgid(home.stat().st_gid)
    if private_group.gr_name == user.pw_name and not set(private_group.gr_mem) - {user.pw_name}:
        assert paths.cache() == home
    others = grp.struct_group(("lab", "x", home.stat().st_gid, ["alice", user.pw_name]))
    monkeypatch.setattr(grp, "getgrgid", lambda _: others)
    with pytest.raises(UsageError, match=r"writable by its group: chmod -R g-w.*XFBENCH_HOME"):
        environment.ensure_environment(adapter.load("reference"))
    of_same_name = grp.struct_group((user.pw_name, "x", home.stat().st_gid, ["alice"]))
    monkeypatch.setattr(grp, "getgrgid", lambda _: of_same_name)
    with pytest.raises(UsageError, match=r"writable by its group"):
        paths.cache()


def test_cache_of_another_user_is_refused(open_folder):
    """A link of another user is refused too."""
    if os.geteuid() != 0:
        pytest.skip("changing owner and user needs root")
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

    def run_as_other_user(path):
        return subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "XFBENCH_HOME": str(path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    os.chown(home, 65533, -1)
    assert run_as_other_user(home).startswith(
        "refused"
    ) and "belongs to another user" in run_as_other_user(home)
    os.chown(home, 65534, -1)
    assert run_as_other_user(home).startswith(str(home))
    os.lchown(link, 65533, -1)
    assert run_as_other_user(link).startswith("refused")


def test_size_of_an_environment_excludes_link_targets(built_environment, tmp_path):
    _, packages = built_environment
    [original] = environment.describe_existing_environments()
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 10**6)
    (packages / "file").write_bytes(b"x" * 1000)
    (packages / "link").symlink_to(outside)
    [extended] = environment.describe_existing_environments()
    assert extended["bytes"] - original["bytes"] == 1000 + len(str(outside))


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("requirements.lock", "# nothing", "# something"),
        ("wheels.lock", "# nothing", "# something"),
        ("adapter.toml", 'python = "3.11"', 'python = "3.12"'),
    ],
)
def test_changed_description_needs_a_new_environment(write_adapter, file, old, new):
    folder = write_adapter("# nothing\n").folder
    (folder / "wheels.lock").write_text("# nothing\n")
    description = folder / "adapter.toml"
    text = description.read_text().replace("[environment]", '[environment]\nwheels = "wheels.lock"')
    description.write_text(text)
    original_plan = environment.describe_kind_state_and_folder(adapter.load("small"))
    assert environment.describe_kind_state_and_folder(adapter.load("small")) == original_plan
    changed = folder / file
    changed.write_text(changed.read_text().replace(old, new))
    assert environment.describe_kind_state_and_folder(adapter.load("small")) != original_plan


def test_worker_inherits_the_choice_of_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    description = adapter.load("reference")
    variables = environment.ensure_environment(description).variables(description, "numpy", 1)
    assert variables["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize(("kind", "is_inherited"), [("python", True), ("managed", False)])
def test_an_interpreter_of_the_user_finds_its_libraries(monkeypatch, kind, is_inherited):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda/lib64")
    description = adapter.load("reference")
    built = replace(environment.ensure_environment(description), kind=kind)
    variables = built.variables(description, "numpy", 1)
    assert ("LD_LIBRARY_PATH" in variables) == is_inherited


def test_variables_of_uv_come_before_those_of_pip(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.invalid/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/pip")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.invalid/simple")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    variables = installer._build_uv_variables()
    assert variables["UV_DEFAULT_INDEX"] == "https://uv.invalid/simple"
    assert variables["UV_FIND_LINKS"] == "/pip"


def test_folders_of_wheels_are_found_from_where_uv_runs(monkeypatch, tmp_path):
    """Pip separates them by spaces and uv by commas. Uv runs in another folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels https://wheels.invalid/all.html /pip")
    monkeypatch.setenv("SSL_CERT_FILE", "site.pem")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    variables = installer._build_uv_variables()
    expected = f"{tmp_path}/wheels,https://wheels.invalid/all.html,/pip"
    assert variables["UV_FIND_LINKS"] == expected
    assert variables["SSL_CERT_FILE"] == f"{tmp_path}/site.pem"
    monkeypatch.setenv("UV_FIND_LINKS", "wheels,/uv")
    assert installer._build_uv_variables()["UV_FIND_LINKS"] == f"{tmp_path}/wheels,/uv"


def small_framework_state():
    [framework] = [listed for listed in inventory.list_framework_states() if listed.name == "small"]
    return framework.state, framework.version


def test_environment_on_disk_is_installed(built_environment):
    assert small_framework_state() == ("installed", "1.0")


@pytest.mark.parametrize(("python", "state"), [("3.11", "available"), ("3.4", "unavailable")])
def test_framework_without_its_python_is_unavailable(write_adapter, python, state):
    file = write_adapter("# nothing\n").folder / "adapter.toml"
    file.write_text(file.read_text().replace('python = "3.11"', f'python = "{python}"'))
    assert small_framework_state() == (state, None)


def test_failure_of_uv_is_shown_with_its_words(write_adapter, tmp_path, monkeypatch, run_inline):
    """Only uv's own words say that an interpreter is missing."""
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\necho Welcome >&2\necho 'error: no space left' >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setattr(installer, "find_uv_bin", lambda: str(program))
    write_adapter("# nothing\n")
    created = run_inline("env", "create", "small")
    listed = run_inline("framework", "list", "--json")
    assert created.returncode == 1
    assert "no space left" in created.stderr and "was found" not in created.stderr
    assert "no space left" in listed.stdout
