"""Every way for a job to end, on a real Slurm: a status and a reason each, and nothing left."""

import json
import os
import shutil
import signal
import time

import psutil
import pytest

from tests.cluster.conftest import left_running, records, until, until_gone, watched
from tests.fake_framework import SLOW

pytestmark = pytest.mark.deep


def recorded(output):
    return json.loads(output)["records"]


def test_missing_queue_is_unavailable_with_the_slurm_message(cluster, xfbench):
    done = cluster.run(*xfbench(more="--ranks 1 --steps 3 --queue nowhere"))
    assert done.returncode == 1
    [record] = records(done)
    assert record["status"] == "unavailable"
    assert "invalid partition" in record["reason"].lower()


def test_cancelled_job_record_states_the_cancellation(cluster, xfbench, tmp_path):
    run = cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 100"))
    until(lambda: left_running(tmp_path), 60)
    [number] = cluster.jobs()
    cluster.run("scancel", number)
    output, errors = run.communicate(timeout=30)
    [record] = recorded(output)
    assert (record["status"], record["request"]["ranks"]) == ("failed", 2), errors
    assert "was cancelled" in record["reason"]
    assert not until_gone(tmp_path)


def test_interrupt_cancels_running_and_pending_jobs(cluster, xfbench, tmp_path):
    """One that runs, and behind it one that waits for its nodes."""
    words = xfbench(SLOW, more="--ranks 8 --nodes 4 --steps 100")
    for waiting in (False, True):
        run = cluster.popen(*words, "--seed", str(int(waiting)))
        expected = 2 if waiting else 1
        until(lambda expected=expected: len(cluster.jobs()) == expected, 60)
        if not waiting:
            until(lambda: left_running(tmp_path), 60)
            first = run
    for one in (run, first):
        [driver] = psutil.Process(one.pid).children()  # of what it was entered by
        driver.send_signal(signal.SIGINT)
        _, errors = one.communicate(timeout=60)
        assert "cancelled" in errors, errors
    until(lambda: not cluster.jobs(), 30)
    assert not until_gone(tmp_path)


def test_interrupt_during_sbatch_cancels_the_job(cluster, xfbench, tmp_path):
    slow = tmp_path / "bin" / "sbatch"
    slow.parent.mkdir()
    real = shutil.which("sbatch", path=cluster.environment["PATH"])
    slow.write_text(f'#!/bin/sh\ntouch "{tmp_path}/asked"\nsleep 2\nexec {real} "$@"\n')
    slow.chmod(0o755)
    path = f"{slow.parent}:{cluster.environment['PATH']}"
    run = cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 100"), PATH=path)
    until((tmp_path / "asked").exists, 60)
    [driver] = psutil.Process(run.pid).children()
    driver.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert "cancelled" in errors, errors
    until(lambda: not cluster.jobs(), 30)


def test_a_job_at_its_time_limit_is_timed_out(cluster, xfbench, tmp_path):
    run = cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 200"))
    until(lambda: left_running(tmp_path), 60)
    [number] = cluster.jobs()
    cluster.run("scontrol", "update", f"JobId={number}", "EndTime=now")
    output, _ = run.communicate(timeout=180)  # Slurm looks each half minute
    [record] = recorded(output)
    assert record["status"] == "timed_out"
    assert not until_gone(tmp_path)


@pytest.mark.parametrize("who", ["rank", "watcher"])
def test_a_killed_rank_ends_the_launch_and_is_named(cluster, xfbench, tmp_path, who):
    run = cluster.popen(*xfbench(SLOW, more="--ranks 4 --nodes 2 --steps 200"))

    def ready():
        found = watched(tmp_path)
        return found if len(found) == 4 else None

    ranks = until(ready, 60)
    killed = next(one for one in ranks if one.environ()["SLURM_PROCID"] == "3")
    time.sleep(1)
    killed = killed if who == "rank" else killed.parent()
    os.kill(killed.pid, signal.SIGKILL)
    assert not until_gone(tmp_path)
    output, _ = run.communicate(timeout=60)
    [record] = recorded(output)
    assert record["status"] == "crashed"
    assert "rank 3 of 4" in record["reason"], record["reason"]
    assert not cluster.jobs()


@pytest.fixture
def without_a_node(network, own_cluster, xfbench, tmp_path):
    """A function that trains on two nodes and lets one of them fail: the record."""

    def do(node):
        run = own_cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 200"))
        until(lambda: len(left_running(tmp_path)) == 4, 60)
        time.sleep(4)  # time for the driver in the job to have counted
        own_cluster.lose(own_cluster.nodes[node])
        assert not until_gone(tmp_path)
        output, errors = run.communicate(timeout=60)
        [record] = recorded(output)
        assert record["status"] == "crashed", errors
        assert not own_cluster.jobs()
        return record

    return do


def test_lost_node_ends_the_launch_before_slurm_notices(without_a_node):
    record = without_a_node(1)
    assert "rank 1 of 2" in record["reason"] and "node 2 of 2" in record["reason"]


def test_login_node_detects_the_loss_of_the_driver_node(without_a_node):
    assert "node" in without_a_node(0)["reason"]


@pytest.mark.parametrize("where", ["from a login node", "in an allocation"])
def test_preempted_job_record_states_the_preemption(cluster, xfbench, tmp_path, where):
    """A job of a partition that goes before wants all nodes."""
    words = xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 100")
    if where == "in an allocation":
        words = ["salloc", "--quiet", "-N2", "--cpus-per-task=2", *words]
    run = cluster.popen(*words)
    until(lambda: left_running(tmp_path), 60)
    cluster.run("srun", "--partition=urgent", "--nodes=4", "true")
    output, errors = run.communicate(timeout=60)
    [record] = recorded(output)
    assert record["status"] == "failed", errors
    assert "was preempted" in record["reason"]
    assert not until_gone(tmp_path) and not cluster.jobs()


EATS = """
def after_step(rank, steps):
    if rank == 1 and steps == 3:
        global eaten
        eaten = b"x" * (900 << 20)
    if steps == 3:
        time.sleep(600)
"""


def test_ranks_over_the_memory_limit_fail_as_out_of_memory(cluster, xfbench, tmp_path):
    site = 'script_options = ["--mem=700"]'
    done = cluster.run(*xfbench(SLOW + EATS, more="--ranks 2 --nodes 2 --steps 5", site=site))
    [record] = records(done)
    assert record["status"] == "failed", record["reason"]
    assert "more memory than" in record["reason"]
    assert not until_gone(tmp_path) and not cluster.jobs()


def test_driver_over_the_memory_limit_fails_as_out_of_memory(cluster, xfbench, tmp_path):
    site = 'script_options = ["--mem=20"]'
    done = cluster.run(*xfbench(more="--ranks 2 --nodes 2 --steps 5", site=site))
    [record] = records(done)
    assert record["status"] == "failed", record["reason"]
    assert "more memory than" in record["reason"]
    assert not until_gone(tmp_path) and not cluster.jobs()


HANGS = "def after_step(rank, steps): time.sleep(600 * (rank == 1))"


def test_hanging_rank_and_its_job_end_at_the_time_limit(cluster, xfbench, tmp_path):
    words = xfbench(HANGS, more="--ranks 2 --nodes 2 --steps 5 --time-limit 8")
    [record] = records(cluster.run(*words))
    assert (record["status"], record["reason"]) == (
        "timed_out",
        "no reply within the time limit of 8 s: raise it with --time-limit",
    )
    assert not until_gone(tmp_path) and not cluster.jobs()


def test_missing_module_is_unavailable_and_submits_no_job(cluster, xfbench):
    site = '[modules.frameworks]\nodd = ["no-such-framework/1"]'
    done = cluster.run(*xfbench(more="--ranks 2 --nodes 2 --steps 5", site=site))
    [record] = records(done)
    assert record["status"] == "unavailable"
    assert "no-such-framework" in record["reason"]
    assert "submitted" not in done.stderr and not cluster.jobs()


def test_job_that_can_never_start_is_reported_and_cancelled(cluster, xfbench):
    """Slurm as it comes leaves such a job waiting for ever."""
    done = cluster.run(*xfbench(more="--ranks 1 --steps 3 --queue small --minutes 30"))
    [record] = records(done)
    assert record["status"] == "unavailable"
    assert "PartitionTimeLimit" in record["reason"]
    assert not cluster.jobs()


def test_node_that_slurm_sets_down_ends_the_job(own_cluster, xfbench, tmp_path):
    run = own_cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 100"))
    until(lambda: left_running(tmp_path), 60)
    own_cluster.run("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=test")
    output, errors = run.communicate(timeout=60)
    [record] = recorded(output)
    assert record["status"] == "crashed", errors
    assert "node of the job failed" in record["reason"]
    assert not until_gone(tmp_path) and not own_cluster.jobs()
