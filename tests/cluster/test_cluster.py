"""Tests of the test cluster: it cleans up, and every user can start one."""

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
from tests.remaining_processes import wait_for

pytestmark = pytest.mark.deep

USE_CLUSTER = """
import sys
from tests.cluster import {node_module}, slurm

cluster = slurm.Cluster({node_module}, count=2)
job = ["--nodes=2", "--output=/dev/null", "--wrap=srun sleep 600"]
cluster.run("sbatch", "--ntasks-per-node=1", *job)
login = cluster.popen("setsid", "sleep", "600")
print(cluster.folder, flush=True)
sys.stdin.read()
cluster.end()
"""


@pytest.fixture(params=[namespaces, processes], ids=["namespaces", "processes"])
def each_node_module(request, node_module):
    """Each module that makes nodes; skipped if it cannot make them here."""
    reason = request.param.unavailable_reason()
    if reason:
        pytest.skip(f"nodes cannot be {request.param.TITLE}: {reason}")
    return request.param


def _list_processes(folder):
    """Return the processes of the cluster with this folder."""
    processes_of_cluster = []
    for process in psutil.process_iter(["status"]):
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(folder in word for word in words) and process.info["status"] != "zombie":
            processes_of_cluster.append(process)
    return processes_of_cluster


@pytest.mark.parametrize("end", ["as it should", "by SIGKILL"])
def test_cluster_cleans_up_after_normal_end_and_sigkill(each_node_module, end):
    """No process of daemons, jobs or commands remains, and no file, mount or network device."""
    devices = socket.if_nameindex()
    script = USE_CLUSTER.format(node_module=each_node_module.__name__.rpartition(".")[2])
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        folder = tests.stdout.readline().strip()
        assert folder

        def has_all_sleepers():
            return sum(process.name() == "sleep" for process in _list_processes(folder)) == 3

        wait_for(has_all_sleepers, 60)  # a job of two ranks, and a command on the login node
        if end == "by SIGKILL":
            tests.send_signal(signal.SIGKILL)
        else:
            tests.stdin.close()
        tests.wait(timeout=60)
    wait_for(lambda: not _list_processes(folder) and not Path(folder).exists(), 30)
    assert folder not in Path("/proc/mounts").read_text()
    assert socket.if_nameindex() == devices


def test_job_runs_on_every_node_at_once(cluster):
    completed = cluster.run("srun", "--nodes=4", "sh", "-c", "echo $SLURMD_NODENAME; sleep 1")
    assert sorted(completed.stdout.split()) == ["node1", "node2", "node3", "node4"], (
        completed.stderr
    )


NOBODY = 65534


@pytest.fixture
def unprivileged_folder():
    """A folder of a user other than root, outside of root's folders."""
    with tempfile.TemporaryDirectory(prefix="xfc-", dir="/tmp") as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch to another user")
def test_unprivileged_user_gets_processes_as_nodes(node_module, unprivileged_folder):
    """Another user, who may only read what root may read, runs tests of this folder."""
    if processes.unavailable_reason():
        pytest.skip(processes.unavailable_reason())
    read_capabilities = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    completed = subprocess.run(
        [
            *(
                "setpriv",
                f"--reuid={NOBODY}",
                f"--regid={NOBODY}",
                "--clear-groups",
                *read_capabilities,
            ),
            *(sys.executable, "-B", "-m", "pytest", "-rs", "-p", "no:cacheprovider"),
            *(f"--basetemp={unprivileged_folder}/pytest", "tests/cluster", "-m", "deep"),
            *("-k", "node_at_once or lost_node"),
        ],
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "HOME": unprivileged_folder,
            "XFBENCH_HOME": f"{unprivileged_folder}/home",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert re.search(r"= 1 passed, 1 skipped", completed.stdout), (
        completed.stdout + completed.stderr
    )
    assert f"cluster: nodes were {processes.TITLE}" in completed.stdout
    assert f"nodes are {processes.TITLE}" in completed.stdout  # why one was skipped


def test_tests_cluster_module_runs_a_command_on_its_cluster(node_module, command_words):
    words = command_words(options="--ranks 2 --steps 3")[4:]  # what follows `xfbench`
    command = [sys.executable, "-m", "tests.cluster", "--nodes", "1", *words]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr
    [record] = json.loads(completed.stdout)["records"]
    assert record["status"] == "ok" and record["request"]["launcher"] == "slurm"
    assert "job 1" in completed.stderr
    command[-len(words) :] = ["run", "--framework", "nonesuch"]
    assert subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 2
