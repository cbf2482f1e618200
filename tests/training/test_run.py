"""Every framework trains LeNet and ConvNet through `xfbench run`, from a request to a rank."""

import json
import os
import subprocess
import sys

import pytest

from tests import debian
from tests.cluster import slurm

FRAMEWORKS = ("caffe", "jax", "mxnet", "tensorflow", "torch")
WORKLOADS = ("lenet", "convnet")


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "results"


@pytest.fixture(scope="session")
def run_json(results, certifying_home):
    """Return a function that runs the command and returns its JSON document.

    What `tests/equality` proved in this session has its certificate; the rest is proven here.
    """

    def run(*words):
        return run_command(words, results, certifying_home)

    return run


def run_command(words, results, home):
    done = subprocess.run(
        [sys.executable, "-m", "xfbench", *words, "--results", str(results), "--json"],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env={**os.environ, "TERM": "dumb", "XFBENCH_HOME": str(home)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def records(run_json):
    """The records of one launch of each framework and network, by these two."""
    words = ["--framework", ",".join(FRAMEWORKS), "--workload", ",".join(WORKLOADS)]
    sizes = ["--batch-size", "16", "--steps", "5", "--warmup", "1", "--launches", "1"]
    document = run_json("run", *words, *sizes)
    return {
        (record["request"]["framework"], record["request"]["workload"]): record
        for record in document["records"]
    }


@pytest.fixture(scope="session")
def rows(records, run_json):
    """The leaderboard's rows of these records, by framework and network."""
    tables = run_json("leaderboard")["tables"]
    return {(row["framework"], table["workload"]): row for table in tables for row in table["rows"]}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_network_is_trained_and_verified(records, framework, workload):
    record = records[framework, workload]
    assert record["status"] == "ok", record["reason"]
    assert record["certificate"]
    assert record["batch_certificate"]
    assert len(record["measurement"]["step_seconds"]) == 5
    assert record["observed"]["framework_version"]


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_verified_network_has_a_rank(rows, framework, workload):
    assert rows[framework, workload]["rank"]
    assert rows[framework, workload]["images_per_second"]


def test_two_ranks_train_under_mpi(run_json):
    """Open MPI's mpirun starts them, and DistributedDataParallel joins them."""
    if reason := slurm.missing_reason():
        debian.skip_test(f"no Open MPI: {reason}")
    words = ["--framework", "torch", "--workload", "lenet", "--ranks", "2", "--scaling", "weak"]
    sizes = ["--threads", "1", "--batch-size", "8", "--steps", "3", "--launches", "1"]
    document = run_json("run", "--launcher", "mpi", "--no-verify", *words, *sizes)
    [record] = document["records"]
    assert record["status"] == "ok", record["reason"]
    assert [rank["rank"] for rank in record["observed"]["ranks"]] == [0, 1]
