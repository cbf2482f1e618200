"""Tests of records from a login node and from an allocation of a real Slurm."""

import json

import pytest

from tests.cluster.commands import (
    MPICH_ADDRESS_ERROR,
    TIMED_OUT,
    XFBENCH,
    read_records,
    run_until_mpich_starts,
)
from tests.fake_framework import SLOW
from tests.remaining_processes import list_workers
from xfbench.base import revisions
from xfbench.model import adapter


@pytest.mark.deep
def test_login_node_run_of_4_frameworks_gives_certified_records(cluster, tmp_path):
    """One job runs for each number of nodes; the leaderboard is a scaling table."""
    options = (
        "run --framework torch,tensorflow,mxnet,caffe --workload lenet --ranks 1,2 --nodes 1,2"
    )
    options += " --scaling strong --launcher slurm --threads 1 --steps 5 --launches 1 --json"
    options += " --time-limit 4m"
    results = tmp_path / "results"
    words = [*XFBENCH, *options.split(), "--results", str(results)]
    processes = run_until_mpich_starts(cluster, *words, results=results, timeout=900)
    completed = processes[-1]
    new_records = [
        record
        for process in processes
        for record in read_records(process)
        if MPICH_ADDRESS_ERROR not in (record["reason"] or "") and record["status"] != TIMED_OUT
    ]
    assert completed.returncode == 0, completed.stderr
    assert len(new_records) == 12
    for record in new_records:
        assert record["status"] == "ok", record["reason"]
        assert record["certificate"], (record["request"]["framework"], completed.stderr)
        assert record["request"]["launcher"] == "slurm"
    spread = {(record["request"]["ranks"], record["request"]["nodes"]) for record in new_records}
    assert spread == {(1, 1), (2, 1), (2, 2)}
    leaderboard = cluster.run(*XFBENCH, "leaderboard", "--json", "--results", str(results))
    [table] = json.loads(leaderboard.stdout)["tables"]
    assert table["scaling"] == "strong" and len(table["rows"]) == 12
    assert not cluster.jobs() and not list_workers(tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("framework", "strategy"), [("mxnet", "dist_async"), ("tensorflow", "parameter_server")]
)
def test_parameter_servers_serve_ranks_on_3_nodes(cluster, framework, strategy, tmp_path):
    """The two servers run on the first two nodes; all ranks have to reach both."""
    options = (
        f"run --framework {framework} --strategy {strategy} --workload lenet --ranks 3 --nodes 3"
        " --strategy-options servers=2"
    )
    options += (
        " --scaling weak --launcher slurm --threads 1 --steps 5 --launches 1 --no-verify --json"
    )
    completed = cluster.run(*XFBENCH, *options.split(), "--results", str(tmp_path), timeout=300)
    [record] = read_records(completed)
    assert record["status"] == "ok", record["reason"]
    assert [rank["rank"] for rank in record["observed"]["ranks"]] == [0, 1, 2]
    communication = record["communication"]
    if "eth0" in communication["interface_bytes"]:  # nodes with their own network
        assert communication["interface_bytes"]["eth0"] > communication["payload_bytes"]
        if framework == "tensorflow":  # each process wrote its address
            [run_folder] = (tmp_path / "runs").iterdir()
            hosts = {
                name: (run_folder / f"meeting.{name}").read_text().partition(":")[0]
                for name in ("0", "1", "2", "ps0", "ps1")
            }
            assert hosts["ps0"] == hosts["0"] and hosts["ps1"] == hosts["1"] != hosts["0"]
    assert not cluster.jobs() and not list_workers(tmp_path)


@pytest.mark.deep
def test_allocation_runs_2_ranks_on_each_of_2_nodes(cluster, command_words, tmp_path):
    words = command_words(options="--ranks 4 --nodes 2 --steps 3")
    completed = cluster.run("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *words)
    [record] = read_records(completed)
    assert record["status"] == "ok", record["reason"]
    assert [rank["rank"] for rank in record["observed"]["ranks"]] == [0, 1, 2, 3]
    run = next((tmp_path / "my results" / "runs").iterdir())
    assert {"stdout", "stdout.3", "stderr.2", "reply.3.json"} <= {p.name for p in run.iterdir()}


def test_a_job_of_two_nodes_becomes_a_record(cluster, command_words, tmp_path):
    options = "--ranks 2 --nodes 2 --steps 3 --pinning sockets --site generic-slurm"
    completed = cluster.run(*command_words(options=options))
    [record] = read_records(completed)
    assert record["status"] == "ok", record["reason"]
    assert record["request"]["launcher"] == "slurm"
    assert all(rank["laid_out"] == rank["affinity"] for rank in record["observed"]["ranks"])
    assert [rank["rank"] for rank in record["observed"]["ranks"]] == [0, 1]
    assert not cluster.jobs() and not list_workers(tmp_path)


@pytest.mark.deep
def test_command_of_a_run_folder_repeats_the_launch_in_another_allocation(
    cluster, command_words, tmp_path
):
    completed = cluster.run(*command_words(options="--ranks 2 --nodes 2 --threads 1 --steps 3"))
    [record] = read_records(completed)
    results = tmp_path / "my results"
    shown = cluster.run(*XFBENCH, "results", "show", record["id"], "--results", str(results))
    [line] = [line for line in shown.stdout.splitlines() if line.startswith("run  ")]
    words = "salloc -N2 --ntasks-per-node=1 --cpus-per-task=1 sh command.sh"
    assert f"(run `{words}` there to repeat it)" in line
    [folder] = (results / "runs").iterdir()
    script = (folder / "command.sh").read_text()
    assert "SLURM_JOB_ID=" not in script and f"for example: {words}" in script
    outside = cluster.run("sh", str(folder / "command.sh"))
    assert outside.returncode == 1 and words in outside.stderr
    inside = cluster.run(*words.split()[:-1], str(folder / "command.sh"))
    assert inside.returncode == 0, inside.stderr
    for name in ("reply-again.json", "reply-again.1.json"):
        assert json.loads((folder / name).read_text())["status"] == "ok"


def test_jobs_of_one_run_follow_each_other(cluster, command_words):
    """Otherwise they would disturb each other."""
    words = command_words(SLOW, options="--ranks 1,2 --ranks-per-node 1 --steps 40")
    assert cluster.run(*words, "--no-wait").returncode == 0
    first, second = sorted(cluster.jobs(), key=int)
    described = cluster.run("scontrol", "show", "job", second).stdout
    assert f"Dependency=afterany:{first}" in described


@pytest.mark.deep
def test_resubmission_adds_no_job_and_resume_collects_the_record(cluster, command_words, tmp_path):
    words = command_words(
        SLOW, options="--ranks 2 --nodes 2 --steps 40"
    )  # still running at the second submission
    first_submission = cluster.run(*words, "--no-wait")
    assert first_submission.returncode == 0, first_submission.stderr
    [number] = cluster.jobs()
    second_submission = cluster.run(*words, "--no-wait")
    assert "in the queue already" in second_submission.stderr
    assert cluster.jobs() == [number]
    completed = cluster.run(*words, "--resume")
    [record] = read_records(completed)
    assert record["status"] == "ok", record["reason"]
    assert not cluster.jobs()
    assert "no launches left" in cluster.run(*words, "--resume").stderr


@pytest.mark.deep
def test_resume_follows_a_job_that_repeats_finished_launches(cluster, command_words):
    words = command_words(SLOW, options="--ranks 2 --nodes 2 --steps 40")
    [first] = read_records(cluster.run(*words))
    assert cluster.run(*words, "--no-wait").returncode == 0
    completed = cluster.run(*words, "--resume")
    [record] = read_records(completed)
    assert record["status"] == "ok", record["reason"]
    assert record["id"] != first["id"]
    assert "is in the queue: following it" in completed.stderr


@pytest.mark.deep
def test_resume_submits_no_job_for_cells_that_reached_their_precision(cluster, command_words):
    words = command_words(options="--steps 3 --until-precision 99%")
    words = [*words[: words.index("--launches")], *words[words.index("--launches") + 2 :]]
    completed = cluster.run(*words)
    records = read_records(completed)
    assert 2 <= len(records) < 20, completed.stderr
    resumed = cluster.run(*words, "--resume")
    assert resumed.returncode == 0 and "no launches left" in resumed.stderr
    assert not cluster.jobs()


@pytest.mark.deep
def test_launch_from_an_allocation_login_node_reaches_its_nodes(cluster, command_words):
    """Neither ranks nor their watchers may rely on the loopback address."""
    words = command_words(options="--ranks 1,2 --threads 1 --steps 3")
    completed = cluster.run("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *words)
    assert [rank["status"] for rank in read_records(completed)] == ["ok", "ok"], completed.stderr


@pytest.mark.deep
def test_ranks_divide_the_cpus_of_a_job_into_threads(cluster, command_words):
    """One rank of two threads and two ranks of one: a job for both requests two CPUs."""
    completed = cluster.run(*command_words(options="--ranks 1,2 --steps 3"))
    records_by_ranks = {record["request"]["ranks"]: record for record in read_records(completed)}
    assert {ranks: record["status"] for ranks, record in records_by_ranks.items()} == {
        1: "ok",
        2: "ok",
    }, completed.stderr
    assert {ranks: record["request"]["threads"] for ranks, record in records_by_ranks.items()} == {
        1: 2,
        2: 1,
    }


def test_dry_run_prints_the_script_and_submits_nothing(cluster, command_words):
    words = command_words(options="--ranks 4 --nodes 2 --steps 3")
    assert "srun" not in cluster.run(*words, "--dry-run").stderr
    completed = cluster.run(*words, "--dry-run", "--show-commands")
    document = json.loads(completed.stdout)
    [script] = document["scripts"]
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n" in script
    [start] = document["starts_in_jobs"]
    assert start.startswith("srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 ")
    assert start.endswith("python worker.pyz request.json reply.json") and "=/" not in start
    assert f"  {start}\n" in completed.stderr
    assert not cluster.jobs()


def test_all_four_frameworks_offer_mpi():
    for name in ("caffe", "mxnet", "tensorflow", "torch"):
        assert "mpi" in adapter.load(name).strategies


@pytest.mark.deep
def test_a_job_measures_the_revisions(cluster, command_words):
    """The job finds the code that the login node has extracted."""
    if revisions.find_checkout() is None:
        pytest.skip("this is no git checkout")
    [head] = revisions.resolve_revisions(["HEAD"])
    completed = cluster.run(*command_words(options="--ranks 1 --steps 3 --revisions HEAD"))
    [record] = read_records(completed)
    assert (record["status"], record["request"]["revision"]) == ("ok", head), completed.stderr
    assert record["software"]["git_commit"] == head
