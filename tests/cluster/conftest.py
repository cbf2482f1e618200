"""A Slurm cluster for whoever asks for `cluster`; what is skipped says why."""

import contextlib
import json
import sys
import time

import psutil
import pytest

from tests.cluster import namespaces, slurm
from tests.conftest import NODES

XFBENCH = [sys.executable, "-P", "-m", "xfbench"]
ASKED = "run --framework odd --workload lenet --batch-size 4 --scaling weak"
ASKED += " --launches 1 --no-verify --json"


@pytest.fixture(scope="session")
def place(request):
    """What nodes are made of here: namespaces where they can be had, else mere processes."""
    chosen, words = slurm.place()
    if chosen is None:
        pytest.skip(f"no Slurm cluster: {words}")
    request.config.stash[NODES] = words
    return chosen


@pytest.fixture
def network(place, request):
    """For tests of what is between nodes: only where they have a network of their own."""
    if place is not namespaces:
        pytest.skip(f"nodes are {request.config.stash[NODES]}")


@pytest.fixture(scope="module")
def shared_cluster(place):
    made = slurm.Cluster(place)
    yield made
    made.end()


@pytest.fixture
def cluster(shared_cluster):
    """Four nodes and a login node, all idle, whatever became of the test before."""
    shared_cluster.clear()
    return shared_cluster


@pytest.fixture
def own_cluster(place):
    """One that a test may break."""
    made = slurm.Cluster(place, count=2)
    yield made
    made.end()


@pytest.fixture
def xfbench(fake_adapter, tmp_path):
    """The words that run xfbench with a framework of the test's own, and its results folder.

    `site` are lines of its site file beyond those every test has.
    """

    def make(lines="", more="", site="", **adapter):
        fake_adapter(lines, **adapter)
        file = tmp_path / "site.toml"
        file.write_text(f'title = "Four nodes of two cores"\nlauncher = "slurm"\ncores = 2\n{site}')
        results = str(tmp_path / "my results")  # with what shells split words at
        asked = [*ASKED.split(), "--site", str(file), *more.split()]
        return [*XFBENCH, *asked, "--results", results]

    return make


def records(run):
    """What a finished run of xfbench has recorded."""
    assert run.stdout, run.stderr
    return json.loads(run.stdout)["records"]


def until(there, seconds):
    """Wait until something is there; what it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := there():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come about")


def until_gone(folder, seconds=30):
    """Wait for the last worker to end; those that are still there.

    Here it takes 1 to 13 s; Slurm alone would take longer than this to notice a lost node.
    """
    end = time.monotonic() + seconds
    while (left := left_running(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def left_running(folder):
    """Workers of ours, on any node, whose launch has its folder below `folder`."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        with contextlib.suppress(psutil.Error):
            ours = (process.info["cmdline"] or [])[1:2] == ["worker.pyz"]
            if ours and process.info["status"] != "zombie" and str(folder) in process.cwd():
                found.append(process)
    return found


def watched(folder):
    """Those of them that another of them has started: ranks, below what watches them."""
    found = left_running(folder)
    numbers = {process.pid for process in found}
    ranks = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            if process.ppid() in numbers:
                ranks.append(process)
    return ranks
