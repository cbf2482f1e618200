"""From a login node and in an allocation of a real Slurm: records, and every way to end."""

import json
import os
import signal
import time

import psutil
import pytest

from tests import side_by_side
from tests.cluster.conftest import XFBENCH, left_running
from tests.side_by_side import TRAINER
from xfbench import adapter

SLOW = "\nimport time\ndef after_step(rank, steps): time.sleep(0.5)\n"
ASKED = "run --framework odd --workload lenet --batch-size 4 --scaling weak"
ASKED += " --launches 1 --no-verify --json"


@pytest.fixture
def xfbench(own_adapter, tmp_path):
    """The words that run xfbench with a framework of the test's own, and its results folder."""

    def make(train="", more=""):
        side_by_side.write(own_adapter, tmp_path, TRAINER + train)
        site = tmp_path / "site.toml"
        site.write_text('title = "Four nodes of two cores"\nlauncher = "slurm"\ncores = 2\n')
        results = str(tmp_path / "my results")  # with what shells split words at
        asked = [*ASKED.split(), "--site", str(site), *more.split()]
        return [*XFBENCH, *asked, "--results", results]

    return make


def records(run):
    assert run.stdout, run.stderr
    return json.loads(run.stdout)["records"]


def until(there, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := there():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come about")


def test_four_frameworks_from_a_login_node_to_certified_records(cluster, tmp_path):
    """The whole way: a job per number of nodes, two ranks on two nodes, a scaling table."""
    asked = "run --framework torch,tensorflow,mxnet,caffe --workload lenet --ranks 1,2 --nodes 1,2"
    asked += " --scaling strong --launcher slurm --threads 1 --steps 5 --launches 1 --json"
    results = ["--results", str(tmp_path / "results")]
    done = cluster.run(*XFBENCH, *asked.split(), *results, timeout=900)
    found = records(done)
    assert done.returncode == 0, done.stderr
    assert len(found) == 12
    for record in found:
        assert record["status"] == "ok", record["reason"]
        assert record["certificate"], (record["request"]["framework"], done.stderr)
        assert record["request"]["launcher"] == "slurm"
    spread = {(one["request"]["ranks"], one["request"]["nodes"]) for one in found}
    assert spread == {(1, 1), (2, 1), (2, 2)}
    shown = cluster.run(*XFBENCH, "leaderboard", "--json", *results)
    [table] = json.loads(shown.stdout)["tables"]
    assert table["scaling"] == "strong" and len(table["rows"]) == 12
    assert not cluster.jobs() and not left_running(tmp_path)


def test_two_ranks_on_each_of_two_nodes_inside_an_allocation(cluster, xfbench, tmp_path):
    words = xfbench(more="--ranks 4 --nodes 2 --steps 3")
    done = cluster.run("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *words)
    [record] = records(done)
    assert record["status"] == "ok", record["reason"]
    assert [one["rank"] for one in record["observed"]["ranks"]] == [0, 1, 2, 3]
    run = next((tmp_path / "my results" / "runs").iterdir())
    assert {"stdout", "stdout.3", "stderr.2", "reply.3.json"} <= {p.name for p in run.iterdir()}


def test_submitting_twice_is_one_job_and_resume_picks_it_up(cluster, xfbench, tmp_path):
    words = xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 8")
    first = cluster.run(*words, "--no-wait")
    assert first.returncode == 0, first.stderr
    [number] = cluster.jobs()
    again = cluster.run(*words, "--no-wait")
    assert "there already" in again.stderr
    assert cluster.jobs() == [number]
    done = cluster.run(*words, "--resume")
    [record] = records(done)
    assert record["status"] == "ok", record["reason"]
    assert not cluster.jobs()
    assert "nothing" in cluster.run(*words, "--resume").stderr


def test_from_the_login_node_of_an_allocation_every_node_is_elsewhere(cluster, xfbench):
    """Nothing of a launch may count on the loopback: neither the ranks nor who watches them."""
    words = xfbench(more="--ranks 1,2 --threads 1 --steps 3")
    done = cluster.run("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *words)
    assert [one["status"] for one in records(done)] == ["ok", "ok"], done.stderr


def test_ranks_share_what_a_job_has_of_a_node_as_they_are_many(cluster, xfbench):
    """One rank of two threads, two ranks of one: a job for both asks for two CPUs."""
    done = cluster.run(*xfbench(more="--ranks 1,2 --steps 3"))
    found = {one["request"]["ranks"]: one for one in records(done)}
    assert {ranks: one["status"] for ranks, one in found.items()} == {1: "ok", 2: "ok"}, done.stderr
    assert {ranks: one["request"]["threads"] for ranks, one in found.items()} == {1: 2, 2: 1}


def test_dry_run_prints_the_script_and_submits_nothing(cluster, xfbench):
    done = cluster.run(*xfbench(more="--ranks 4 --nodes 2 --steps 3"), "--dry-run")
    [script] = json.loads(done.stdout)["scripts"]
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n" in script
    assert not cluster.jobs()


def test_a_queue_that_is_not_there_is_told_in_slurms_words(cluster, xfbench):
    done = cluster.run(*xfbench(more="--ranks 1 --steps 3 --queue nowhere"))
    assert done.returncode == 1
    [record] = records(done)
    assert record["status"] == "unavailable"
    assert "invalid partition" in record["reason"].lower()


def test_a_job_that_is_cancelled_says_so(cluster, xfbench, tmp_path):
    run = cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 100"))
    until(lambda: left_running(tmp_path), 60)
    [number] = cluster.jobs()
    cluster.run("scancel", number)
    output, errors = run.communicate(timeout=30)
    [record] = json.loads(output)["records"]
    assert (record["status"], record["request"]["ranks"]) == ("failed", 2), errors
    assert "was cancelled" in record["reason"]
    assert not until_gone(tmp_path)


def test_an_interrupt_takes_the_job_out_of_the_queue(cluster, xfbench, tmp_path):
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
        [driver] = psutil.Process(one.pid).children()  # of nsenter
        driver.send_signal(signal.SIGINT)
        _, errors = one.communicate(timeout=60)
        assert "cancelled" in errors, errors
    until(lambda: not cluster.jobs(), 30)
    assert not until_gone(tmp_path)


def test_a_job_at_its_time_limit_is_timed_out(cluster, xfbench, tmp_path):
    run = cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 200"))
    until(lambda: left_running(tmp_path), 60)
    [number] = cluster.jobs()
    cluster.run("scontrol", "update", f"JobId={number}", "EndTime=now")
    output, _ = run.communicate(timeout=60)
    [record] = json.loads(output)["records"]
    assert record["status"] == "timed_out"
    assert not until_gone(tmp_path)


def until_gone(folder, seconds=30):
    """Wait for the last worker to end; those that are still there.

    Here it takes 1 to 13 s; Slurm alone would take longer than this to notice a lost node.
    """
    end = time.monotonic() + seconds
    while (left := left_running(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


@pytest.mark.parametrize("who", ["rank", "watcher"])
def test_a_killed_rank_ends_the_launch_and_is_named(cluster, xfbench, tmp_path, who):
    run = cluster.popen(*xfbench(SLOW, more="--ranks 4 --nodes 2 --steps 200"))

    def ready():
        found = left_running(tmp_path)
        return found if len(found) == 8 else None  # each rank and the watcher beside it

    found = until(ready, 60)
    ranks = [one for one in found if one.parent() in found]
    killed = next(one for one in ranks if one.environ()["SLURM_PROCID"] == "3")
    time.sleep(1)
    killed = killed if who == "rank" else killed.parent()
    os.kill(killed.pid, signal.SIGKILL)
    assert not until_gone(tmp_path)
    output, _ = run.communicate(timeout=60)
    [record] = json.loads(output)["records"]
    assert record["status"] == "crashed"
    assert "rank 3 of 4" in record["reason"], record["reason"]
    assert not cluster.jobs()


def test_a_lost_node_ends_the_launch_long_before_slurm_knows(own_cluster, xfbench, tmp_path):
    run = own_cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 200"))
    until(lambda: len(left_running(tmp_path)) == 4, 60)
    time.sleep(2)
    own_cluster.lose(own_cluster.nodes[1])
    assert not until_gone(tmp_path)
    output, _ = run.communicate(timeout=60)
    [record] = json.loads(output)["records"]
    assert record["status"] == "crashed"
    assert "rank 1 of 2" in record["reason"] and "node 2 of 2" in record["reason"]
    assert not own_cluster.jobs()


def test_the_loss_of_the_drivers_node_is_seen_from_the_login_node(own_cluster, xfbench, tmp_path):
    run = own_cluster.popen(*xfbench(SLOW, more="--ranks 2 --nodes 2 --steps 200"))
    until(lambda: len(left_running(tmp_path)) == 4, 60)
    time.sleep(4)
    own_cluster.lose(own_cluster.nodes[0])
    output, errors = run.communicate(timeout=60)
    [record] = json.loads(output)["records"]
    assert record["status"] == "crashed", errors
    assert "node" in record["reason"]
    assert not until_gone(tmp_path)
    assert not own_cluster.jobs()


def test_all_four_frameworks_offer_mpi():
    for name in ("caffe", "mxnet", "tensorflow", "torch"):
        assert "mpi" in adapter.load(name).strategies
