"""The worker starts in every CPython from 3.8 to 3.13 that is found, and needs only NumPy."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from uv import find_uv_bin

from xfbench.environments import worker_archive
from xfbench.execution import job
from xfbench.workloads import workloads

# The oldest and the newest for every change.
VERSIONS = [
    "3.8",
    *(pytest.param(version, marks=pytest.mark.deep) for version in ("3.9", "3.10", "3.11", "3.12")),
    "3.13",
]


@cache
def find_interpreter(version):
    """Path of a CPython of this version, or None: pyenv's folder first, then where uv looks."""
    candidates = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if candidates:
        return candidates[0]
    completed = subprocess.run(
        [find_uv_bin(), "python", "find", "--no-project", "--system", version],
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(completed.stdout.strip()) if completed.returncode == 0 else None


@pytest.mark.parametrize("version", VERSIONS)
def test_worker_trains_in_every_supported_python(version, tmp_path, cell):
    python = find_interpreter(version)
    if python is None:
        pytest.skip(f"no CPython {version} found here")
    environment = tmp_path / "environment"
    uv = [find_uv_bin(), "--quiet"]
    subprocess.run([*uv, "venv", "--python", python, environment], check=True)
    target = environment / "bin" / "python"
    subprocess.run([*uv, "pip", "install", "--python", target, "numpy"], check=True)
    request = cell().request(1)
    document = job.build_job_document("train", request, workloads()["lenet"])
    (tmp_path / "job.json").write_text(json.dumps(document))
    shutil.copy(worker_archive.ensure_worker_archive("reference"), tmp_path / "worker.pyz")
    subprocess.run(
        [target, "worker.pyz", "job.json", "reply.json"], cwd=tmp_path, check=True, timeout=120
    )
    reply = json.loads((tmp_path / "reply.json").read_text())
    assert reply["status"] == "ok", reply
    assert len(reply["measurement"]["step_seconds"]) == 3


def test_python_without_numpy_is_unavailable(tmp_path, cell):
    environment = tmp_path / "environment"
    subprocess.run([find_uv_bin(), "--quiet", "venv", environment], check=True)
    document = job.build_job_document("train", cell().request(1), workloads()["lenet"])
    (tmp_path / "job.json").write_text(json.dumps(document))
    subprocess.run(
        [
            environment / "bin" / "python",
            worker_archive.ensure_worker_archive("reference"),
            *("job.json", "reply.json"),
        ],
        cwd=tmp_path,
        check=True,
    )
    reply = json.loads((tmp_path / "reply.json").read_text())
    assert reply["status"] == "unavailable"
    assert "NumPy" in reply["reason"]
