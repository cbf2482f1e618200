"""Environments: made once, whole or not at all, whoever else is making them."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from xfbench import adapter, environment
from xfbench.errors import UnavailableError


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


def test_a_lock_becomes_an_environment_with_exactly_its_packages(small, numpy_lock):
    found = environment.ensure(small(numpy_lock))
    assert found.version == found.packages["numpy"] == numpy_lock.split("==")[1].split()[0]
    assert set(found.packages) == {"numpy"}
    assert environment.find(small(numpy_lock)) == found
    assert found.digest.startswith("sha256:")


def test_two_processes_that_make_the_same_one_at_once_end_with_one_good_one(
    small, numpy_lock, tmp_path
):
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


def test_a_half_made_environment_is_never_used(small, numpy_lock, tmp_path):
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
        (None, "requirements.lock"),
    ],
)
def test_what_cannot_be_installed_is_unavailable_with_the_reason_and_leaves_nothing(
    small, lock, words, tmp_path
):
    with pytest.raises(UnavailableError) as caught:
        environment.ensure(small(lock))
    assert words in str(caught.value).lower() and "\n" not in str(caught.value)
    assert not [p for p in tmp_path.glob("home/environments/*") if p.is_dir()]


def test_without_a_network_the_reason_is_told(small, numpy_lock, monkeypatch, tmp_path):
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # it may name packages on this disk
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UnavailableError, match=r"(?i)network|offline"):
        environment.ensure(small(numpy_lock))


def test_a_removed_environment_is_made_again(small, numpy_lock):
    described = small(numpy_lock)
    environment.ensure(described)
    assert environment.remove(described) and not environment.remove(described)
    assert environment.find(described) is None
    assert environment.ensure(described).version


def test_no_lock_of_ours_allows_a_cuda_build():
    for name in adapter.names():
        described = adapter.load(name)
        if described.environment.kind == "managed":
            lock = (described.folder / "requirements.lock").read_text().lower()
            assert "nvidia" not in lock and "cuda" not in lock and "triton" not in lock


def test_a_worker_inherits_only_what_is_on_the_list(monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "77")
    monkeypatch.setenv("LD_PRELOAD", "")
    described = adapter.load("reference")
    variables = environment.ensure(described).variables(described, "numpy", 3)
    assert variables["MKL_NUM_THREADS"] == variables["OPENBLAS_NUM_THREADS"] == "3"
    assert "LD_PRELOAD" not in variables
    assert variables["PATH"] == os.environ["PATH"]
    assert json.dumps(variables)
