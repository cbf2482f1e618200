"""A Slurm cluster for whoever asks for `cluster`; what is skipped says why."""

import contextlib
import sys

import psutil
import pytest

from tests.cluster import namespaces, slurm


@pytest.fixture(scope="session")
def refusal():
    """Why there can be no cluster here; None where there can."""
    return slurm.missing() or namespaces.refusal()


@pytest.fixture(scope="module")
def shared_cluster(refusal):
    if refusal:
        pytest.skip(f"no Slurm cluster: {refusal}")
    made = slurm.Cluster()
    yield made
    made.end()


@pytest.fixture
def cluster(shared_cluster):
    """Four nodes and a login node, all idle, whatever became of the test before."""
    shared_cluster.clear()
    return shared_cluster


@pytest.fixture
def own_cluster(refusal):
    """One that a test may break."""
    if refusal:
        pytest.skip(f"no Slurm cluster: {refusal}")
    made = slurm.Cluster(count=2)
    yield made
    made.end()


XFBENCH = [sys.executable, "-P", "-m", "xfbench"]


def left_running(folder):
    """Workers of ours, on any node, whose launch has its folder below `folder`."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        with contextlib.suppress(psutil.Error):
            ours = (process.info["cmdline"] or [])[1:2] == ["worker.pyz"]
            if ours and process.info["status"] != "zombie" and str(folder) in process.cwd():
                found.append(process)
    return found
