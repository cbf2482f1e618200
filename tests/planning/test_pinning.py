"""Tests of pinning to sockets and NUMA nodes before a launch: what fits, and default threads."""

import os

import pytest

from xfbench.base.errors import UsageError
from xfbench.planning import pinning, plan_builder

ALLOWED = os.sched_getaffinity(0)


@pytest.fixture
def two_sockets(tmp_path):
    """Return a system's folder of CPUs: two sockets of four cores, two hardware threads each."""
    for cpu in range(16):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu % 8 // 4}\n")
        (topology / "thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
        (tmp_path / f"cpu{cpu}" / f"node{cpu % 8 // 2}").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "allowed", "ranks", "reserved", "share"),
    [
        ("sockets", range(16), 1, 0, 4),
        ("sockets", range(16), 2, 0, 4),
        ("sockets", range(16), 3, 0, 2),
        ("sockets", range(16), 4, 0, 2),
        ("sockets", range(16), 64, 0, 1),
        ("numa", range(16), 1, 0, 2),
        ("numa", range(16), 8, 0, 1),
        # One core of the first socket is reserved: one rank uses the second socket.
        ("sockets", range(16), 1, 1, 4),
        ("sockets", range(16), 2, 1, 3),
        ("sockets", [0, 8, 4, 5, 6], 1, 0, 3),
    ],
)
def test_default_threads_are_a_share_of_the_cores_of_a_group(
    two_sockets, name, allowed, ranks, reserved, share
):
    assert pinning.even_share_of_group(name, ranks, reserved, {*allowed}, two_sockets) == share


def build_plan(**settings):
    return plan_builder.build_plan({"framework": ["torch"], "workload": ["lenet"], **settings})


@pytest.mark.parametrize("name", ["sockets", "numa"])
def test_threads_that_do_not_fit_are_refused_before_the_launch(name):
    with pytest.raises(UsageError, match=f"^--pinning {name}: 4096 threads need a .*--threads"):
        build_plan(pinning=name, threads=[1, 4096])
    with pytest.raises(UsageError, match=f"^--pinning {name}: 2 ranks of 4096 threads need"):
        build_plan(pinning=name, threads=[4096], ranks=[2], scaling="weak", launcher="mpi")


def test_ranks_on_other_machines_are_not_checked_here(tmp_path):
    settings = {"pinning": "sockets", "threads": [4096], "ranks": [2], "scaling": "weak"}
    site = tmp_path / "site.toml"
    site.write_text('title = "t"\nhosts = ["node1"]\n')
    for elsewhere in (
        {"launcher": "slurm"},
        {"launcher": "mpi", "nodes": [2]},
        {"launcher": "mpi", "site": str(site)},
        {"bundle": tmp_path / "bundle"},
    ):
        assert build_plan(**settings, **elsewhere).requests


@pytest.mark.parametrize("name", ["sockets", "numa"])
def test_default_threads_fit(name):
    plan = build_plan(pinning=name)
    assert {request.affinity for request in plan.requests} == {name}
    os.sched_setaffinity(0, {max(ALLOWED)})
    try:
        plan = build_plan(pinning=name, ranks=[2], scaling="weak")
    finally:
        os.sched_setaffinity(0, ALLOWED)
    assert {request.threads for request in plan.requests} == {1}
