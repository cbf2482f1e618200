"""Tests of all ways a job can end on a real Slurm: status, reason and cleanup."""

import json
import os
import shutil
import signal
import time

import psutil
import pytest

from tests.cluster.commands import read_records
from tests.fake_framework import SLOW
from tests.remaining_processes import list_ranks, list_workers, wait_for, wait_until_workers_end
from xfbench.store.results_folder import Store

pytestmark = pytest.mark.deep


def parse_records(output):
    return json.loads(output)["records"]


def test_missing_queue_is_unavailable_with_the_slurm_message(cluster, command_words):
    completed = cluster.run(*command_words(options="--ranks 1 --steps 3 --partition nowhere"))
    assert completed.returncode == 1
    [record] = read_records(completed)
    assert record["status"] == "unavailable"
    assert "invalid partition" in record["reason"].lower()


def test_cancelled_job_record_states_the_cancellation(cluster, command_words, tmp_path):
    run = cluster.popen(*command_words(SLOW, options="--ranks 2 --nodes 2 --steps 100"))
    wait_for(lambda: list_workers(tmp_path), 180)
    [number] = cluster.jobs()
    cluster.run("scancel", number)
    output, errors = run.communicate(timeout=30)
    [record] = parse_records(output)
    assert (record["status"], record["request"]["ranks"]) == ("failed", 2), errors
    assert "was cancelled" in record["reason"]
    assert not wait_until_workers_end(tmp_path)


def test_interrupt_cancels_running_and_pending_jobs(cluster, command_words, tmp_path):
    """One job runs, and a second one waits for its nodes."""
    words = command_words(SLOW, options="--ranks 8 --nodes 4 --steps 100")
    for is_second in (False, True):
        run = cluster.popen(*words, "--seed", str(int(is_second)))
        expected = 2 if is_second else 1
        wait_for(lambda expected=expected: len(cluster.jobs()) == expected, 180)
        if not is_second:
            wait_for(lambda: list_workers(tmp_path), 180)
            first_run = run
    for command in (run, first_run):
        [driver] = psutil.Process(command.pid).children()  # below nsenter or the keeper
        driver.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
        assert "cancelled" in errors, errors
    wait_for(lambda: not cluster.jobs(), 30)
    assert not wait_until_workers_end(tmp_path)


def test_interrupt_during_sbatch_cancels_the_job(cluster, command_words, tmp_path):
    slow_sbatch = tmp_path / "bin" / "sbatch"
    slow_sbatch.parent.mkdir()
    real_sbatch = shutil.which("sbatch", path=cluster.environment["PATH"])
    slow_sbatch.write_text(
        f'#!/bin/sh\ntouch "{tmp_path}/asked"\nsleep 2\nexec {real_sbatch} "$@"\n'
    )
    slow_sbatch.chmod(0o755)
    path = f"{slow_sbatch.parent}:{cluster.environment['PATH']}"
    run = cluster.popen(*command_words(SLOW, options="--ranks 2 --nodes 2 --steps 100"), PATH=path)
    wait_for((tmp_path / "asked").exists, 180)
    [driver] = psutil.Process(run.pid).children()
    driver.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert "cancelled" in errors, errors
    wait_for(lambda: not cluster.jobs(), 30)


def test_a_job_at_its_time_limit_is_timed_out(cluster, command_words, tmp_path):
    # Slurm checks every 30 s, and later on a busy machine: the launch would take 300 s.
    run = cluster.popen(*command_words(SLOW, options="--ranks 2 --nodes 2 --steps 600"))
    wait_for(lambda: list_workers(tmp_path), 180)
    [number] = cluster.jobs()
    cluster.run("scontrol", "update", f"JobId={number}", "EndTime=now")
    output, _ = run.communicate(timeout=280)
    [record] = parse_records(output)
    assert record["status"] == "timed_out"
    assert not wait_until_workers_end(tmp_path)


def test_a_launch_that_starts_after_the_end_time_of_its_job_is_timed_out(
    cluster, command_words, tmp_path
):
    words = command_words(SLOW, options="--ranks 1 --steps 10")
    words[words.index("--launches") + 1] = "2"
    run = cluster.popen(*words)
    wait_for(lambda: list_workers(tmp_path), 180)
    [number] = cluster.jobs()
    cluster.run("scontrol", "update", f"JobId={number}", "EndTime=now")
    output, errors = run.communicate(timeout=280)
    assert parse_records(output)[-1]["status"] == "timed_out", errors


@pytest.mark.parametrize("victim_kind", ["rank", "watcher"])
def test_a_killed_rank_ends_the_launch_and_is_named(cluster, command_words, tmp_path, victim_kind):
    run = cluster.popen(*command_words(SLOW, options="--ranks 4 --nodes 2 --steps 200"))

    def list_four_ranks():
        running_ranks = list_ranks(tmp_path)
        return running_ranks if len(running_ranks) == 4 else None

    ranks = wait_for(list_four_ranks, 180)
    victim = next(rank for rank in ranks if rank.environ()["SLURM_PROCID"] == "3")
    time.sleep(1)
    victim = victim if victim_kind == "rank" else victim.parent()
    os.kill(victim.pid, signal.SIGKILL)
    assert not wait_until_workers_end(tmp_path)
    output, _ = run.communicate(timeout=60)
    [record] = parse_records(output)
    assert record["status"] == "crashed"
    assert "rank 3 of 4" in record["reason"], record["reason"]
    assert not cluster.jobs()


@pytest.fixture
def lose_node(network, own_cluster, command_words, tmp_path):
    """A function that trains on two nodes, ends one of them and returns the record."""

    def train_and_lose(node):
        run = own_cluster.popen(*command_words(SLOW, options="--ranks 2 --nodes 2 --steps 200"))
        wait_for(lambda: len(list_workers(tmp_path)) == 4, 180)
        time.sleep(4)  # so that the driver in the job knows all ranks
        own_cluster.lose(own_cluster.nodes[node])
        assert not wait_until_workers_end(tmp_path)
        output, errors = run.communicate(timeout=60)
        [record] = parse_records(output)
        assert record["status"] == "crashed", errors
        assert not own_cluster.jobs()
        return record

    return train_and_lose


def test_lost_node_ends_the_launch_before_slurm_notices(lose_node):
    record = lose_node(1)
    assert "rank 1 of 2" in record["reason"] and "node 2 of 2" in record["reason"]


def test_login_node_detects_the_loss_of_the_driver_node(lose_node):
    assert "node" in lose_node(0)["reason"]


@pytest.mark.parametrize("origin", ["from a login node", "in an allocation"])
def test_preempted_job_record_states_the_preemption(cluster, command_words, tmp_path, origin):
    """A job of a partition with higher priority requests all nodes."""
    words = command_words(SLOW, options="--ranks 2 --nodes 2 --steps 100")
    if origin == "in an allocation":
        words = ["salloc", "--quiet", "-N2", "--cpus-per-task=2", *words]
    run = cluster.popen(*words)
    wait_for(lambda: list_workers(tmp_path), 180)
    cluster.run("srun", "--partition=urgent", "--nodes=4", "true")
    output, errors = run.communicate(timeout=60)
    [record] = parse_records(output)
    assert record["status"] == "failed", errors
    assert "was preempted" in record["reason"]
    assert not wait_until_workers_end(tmp_path) and not cluster.jobs()


MEMORY_HOG = """
def after_step(rank, steps):
    if rank == 1 and steps == 3:
        global eaten
        eaten = b"x" * (900 << 20)
    if steps == 3:
        time.sleep(600)
"""


def test_ranks_over_the_memory_limit_fail_as_out_of_memory(cluster, command_words, tmp_path):
    site = 'script_options = ["--mem=700"]'
    completed = cluster.run(
        *command_words(SLOW + MEMORY_HOG, options="--ranks 2 --nodes 2 --steps 5", site=site)
    )
    [record] = read_records(completed)
    assert record["status"] == "failed", record["reason"]
    assert "more memory than" in record["reason"]
    assert not wait_until_workers_end(tmp_path) and not cluster.jobs()


def test_driver_over_the_memory_limit_fails_as_out_of_memory(cluster, command_words, tmp_path):
    site = 'script_options = ["--mem=20"]'
    completed = cluster.run(*command_words(options="--ranks 2 --nodes 2 --steps 5", site=site))
    [record] = read_records(completed)
    assert record["status"] == "failed", record["reason"]
    assert "more memory than" in record["reason"]
    assert not wait_until_workers_end(tmp_path) and not cluster.jobs()


HANGING_RANK = "def after_step(rank, steps): time.sleep(600 * (rank == 1))"


def test_hanging_rank_and_its_job_end_at_the_time_limit(cluster, command_words, tmp_path):
    words = command_words(HANGING_RANK, options="--ranks 2 --nodes 2 --steps 5 --time-limit 8")
    [record] = read_records(cluster.run(*words))
    assert (record["status"], record["reason"]) == (
        "timed_out",
        "no reply within the time limit of 8 s: raise it with --time-limit",
    )
    assert not wait_until_workers_end(tmp_path) and not cluster.jobs()


def test_missing_module_is_unavailable_and_submits_no_job(cluster, command_words):
    site = '[modules.frameworks]\nodd = ["no-such-framework/1"]'
    completed = cluster.run(*command_words(options="--ranks 2 --nodes 2 --steps 5", site=site))
    [record] = read_records(completed)
    assert record["status"] == "unavailable"
    assert "no-such-framework" in record["reason"]
    assert "submitted" not in completed.stderr and not cluster.jobs()


def test_job_that_can_never_start_is_reported_and_cancelled(cluster, command_words):
    """By default Slurm leaves such a job pending for ever."""
    completed = cluster.run(
        *command_words(options="--ranks 1 --steps 3 --partition small --job-time 30m")
    )
    [record] = read_records(completed)
    assert record["status"] == "unavailable"
    assert "PartitionTimeLimit" in record["reason"]
    assert not cluster.jobs()


def test_node_that_slurm_sets_down_ends_the_job(own_cluster, command_words, tmp_path):
    run = own_cluster.popen(*command_words(SLOW, options="--ranks 2 --nodes 2 --steps 100"))
    wait_for(lambda: list_workers(tmp_path), 180)
    own_cluster.run("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=test")
    output, errors = run.communicate(timeout=60)
    [record] = parse_records(output)
    assert record["status"] == "crashed", errors
    assert "node of the job failed" in record["reason"]
    assert not wait_until_workers_end(tmp_path) and not own_cluster.jobs()


def test_launches_that_a_lost_job_had_not_started_are_left_to_resume(
    own_cluster, command_words, tmp_path
):
    words = command_words(SLOW, options="--ranks 2 --nodes 2 --steps 20 --launches 4")
    run = own_cluster.popen(*words)
    wait_for(lambda: list((tmp_path / "my results" / "records").rglob("*.json")), 90)
    wait_for(lambda: list_workers(tmp_path), 180)
    own_cluster.run("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=test")
    output, errors = run.communicate(timeout=90)
    *complete, crashed = [record["status"] for record in parse_records(output)]
    assert crashed == "crashed" and complete in (["ok"], ["ok", "ok"])
    remaining = 3 - len(complete)
    assert run.returncode == 1
    assert f"{remaining} launches had not started; continue with --resume" in errors
    own_cluster.run("scontrol", "update", "NodeName=node2", "State=RESUME")
    resumed = own_cluster.run(*words, "--resume")
    assert [record["status"] for record in read_records(resumed)] == ["ok"] * (remaining + 1)
    stored = [record.status for record in Store(tmp_path / "my results").records()]
    assert sorted(stored) == ["crashed", *["ok"] * 4]  # the job repeated no finished launch
