"""Tests of where the servers of a strategy run, with stand-in start commands."""

import json

import pytest

from tests.fake_framework import STRATEGY, TWO_RANKS
from xfbench.worker import distributed

# Starts the ranks here. Each process learns the node that was chosen for it.
SRUN = """#!/bin/sh
node=any
while [ "${1#-}" != "$1" ]; do
    case $1 in
        --ntasks=*) export SLURM_NTASKS="${1#*=}" ;;
        --relative=*) node=${1#*=} ;;
    esac
    shift
done
for rank in $(seq 0 $((SLURM_NTASKS - 1))); do NODE=$node SLURM_PROCID=$rank "$@" & done
wait
"""
SERVE = """
import os, pathlib, time
path = pathlib.Path("served.{number}")
path.with_suffix(".partial").write_text(os.environ.get("NODE", "here") + " " + os.environ["AT"])
path.with_suffix(".partial").rename(path.with_name("served-{number}"))
time.sleep(600)
"""
WAIT_FOR_SERVERS = """
def after_step(rank, steps):
    while not all(Path(f"served-{number}").exists() for number in range(3)):
        time.sleep(0.01)
"""
STRATEGY_WITH_SERVERS = {
    "title": "with servers",
    "serve": SERVE,
    "counted": {"servers": {"AT": "{address}"}},
    "options": {"servers": {"title": "number of servers", "kind": "count", "default": 1}},
}


@pytest.fixture
def launch_servers(launch_fake):
    """A function that launches two ranks on two nodes with three servers."""

    def launch(body="", **request):
        return launch_fake(
            body,
            adapter={"together": {STRATEGY: STRATEGY_WITH_SERVERS}},
            strategy_options=(("servers", 3),),
            **TWO_RANKS,
            **request,
        )

    return launch


@pytest.fixture
def srun(tmp_path, monkeypatch):
    program = tmp_path / "srun"
    program.write_text(SRUN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def read_servers(folder):
    return [(folder / f"served-{number}").read_text().split() for number in range(3)]


def test_servers_under_slurm_run_on_the_nodes_in_turn(launch_servers, srun):
    record, folder = launch_servers(WAIT_FOR_SERVERS, launcher="slurm", nodes=2)
    assert record.status == "ok", record.reason
    address = distributed.host_address(remote=True)
    assert read_servers(folder) == [["0", address], ["1", address], ["0", address]]


def test_servers_on_one_node_run_beside_the_ranks(launch_servers):
    record, folder = launch_servers(WAIT_FOR_SERVERS)
    assert record.status == "ok", record.reason
    assert read_servers(folder) == [["here", "127.0.0.1"]] * 3


@pytest.mark.parametrize("site_lines", ['hosts = ["a1", "a2"]', ""])
def test_servers_under_mpirun_run_on_the_hosts_of_the_site_in_turn(
    launch_servers, tmp_path, monkeypatch, site_lines
):
    """Without hosts, mpirun chooses the nodes, and the servers run on the first one."""
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    site = tmp_path / "site.toml"
    site.write_text(f'title = "two nodes"\nlauncher = "mpi"\n{site_lines}\n')
    _, folder = launch_servers(launcher="mpi", nodes=2, site=str(site))
    *servers, ranks = json.loads((folder / "command.json").read_text())
    assert ranks["argv"][:3] == ["mpirun", "-n", "2"]
    hosts = [
        server["argv"][server["argv"].index("--host") + 1]
        for server in servers
        if server["argv"][:3] == ["mpirun", "-n", "1"]
    ]
    assert hosts == (["a1:1", "a2:1", "a1:1"] if site_lines else [])
    assert len(servers) == 3
