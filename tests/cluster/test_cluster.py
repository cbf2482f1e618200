"""The cluster of the tests itself: it leaves nothing, and anybody may have one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.cluster import namespaces, processes
from tests.cluster.conftest import until

pytestmark = pytest.mark.deep

USES = """
import sys
from tests.cluster import {place}, slurm

cluster = slurm.Cluster({place}, count=2)
job = ["--nodes=2", "--output=/dev/null", "--wrap=srun sleep 600"]
cluster.run("sbatch", "--ntasks-per-node=1", *job)
login = cluster.popen("setsid", "sleep", "600")
print(cluster.folder, flush=True)
sys.stdin.read()
cluster.end()
"""


@pytest.fixture(params=[namespaces, processes], ids=["namespaces", "processes"])
def form(request, place):
    """What nodes can be made of, one after the other."""
    reason = request.param.refusal()
    if reason:
        pytest.skip(f"nodes cannot be {request.param.TITLE}: {reason}")
    return request.param


def _of(folder):
    """Processes that belong to the cluster with that folder."""
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(folder in word for word in words) and process.info["status"] != "zombie":
            found.append(process)
    return found


@pytest.mark.parametrize("end", ["as it should", "by SIGKILL"])
def test_cluster_cleans_up_after_normal_end_and_sigkill(form, end):
    """No process of daemons, jobs and commands, no file, no mount, no network device."""
    devices = socket.if_nameindex()
    script = USES.format(place=form.__name__.rpartition(".")[2])
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        folder = tests.stdout.readline().strip()
        assert folder

        def works():
            return sum(one.name() == "sleep" for one in _of(folder)) == 3

        until(works, 60)  # a job of two ranks, and a command on the login node
        if end == "by SIGKILL":
            tests.send_signal(signal.SIGKILL)
        else:
            tests.stdin.close()
        tests.wait(timeout=60)
    until(lambda: not _of(folder) and not Path(folder).exists(), 30)
    assert folder not in Path("/proc/mounts").read_text()
    assert socket.if_nameindex() == devices


def test_job_runs_on_every_node_at_once(cluster):
    done = cluster.run("srun", "--nodes=4", "sh", "-c", "echo $SLURMD_NODENAME; sleep 1")
    assert sorted(done.stdout.split()) == ["node1", "node2", "node3", "node4"], done.stderr


NOBODY = 65534


@pytest.fixture
def theirs():
    """A folder of somebody's who is not root, nor in a folder of root's."""
    with tempfile.TemporaryDirectory(prefix="xfc-", dir="/tmp") as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_unprivileged_user_gets_processes_as_nodes(place, theirs):
    """Tests of this folder, by a user without rights but to read what root may read."""
    if processes.refusal():
        pytest.skip(processes.refusal())
    may_read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    done = subprocess.run(
        [
            *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *may_read),
            *(sys.executable, "-B", "-m", "pytest", "-rs", "-p", "no:cacheprovider"),
            *(f"--basetemp={theirs}/pytest", "tests/cluster", "-m", "deep"),
            *("-k", "node_at_once or lost_node"),
        ],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "HOME": theirs, "XFBENCH_HOME": f"{theirs}/home"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert re.search(r"= 1 passed, 1 skipped", done.stdout), done.stdout + done.stderr
    assert f"cluster: nodes were {processes.TITLE}" in done.stdout
    assert f"nodes are {processes.TITLE}" in done.stdout  # why one was skipped


def test_tests_cluster_module_runs_a_command_on_its_cluster(place, xfbench):
    words = xfbench(more="--ranks 2 --steps 3")[4:]  # what follows `xfbench`
    line = [sys.executable, "-m", "tests.cluster", "--nodes", "1", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    [record] = json.loads(done.stdout)["records"]
    assert record["status"] == "ok" and record["request"]["launcher"] == "slurm"
    assert "job 1" in done.stderr
    line[-len(words) :] = ["run", "--framework", "nonesuch"]
    assert subprocess.run(line, capture_output=True, timeout=120, check=False).returncode == 2
