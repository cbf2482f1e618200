"""Strategies in which no rank waits for another, on real frameworks, and options that arrive."""

import json
import subprocess
import sys

import pytest

from xfbench import exchange
from xfbench.workloads import workloads

XFBENCH = [sys.executable, "-m", "xfbench"]
SMALL = "--workload lenet --ranks 2 --scaling weak --batch-size 16 --threads 1 --steps 6"


def xfbench(*words, timeout=600):
    return subprocess.run(
        [*XFBENCH, *words], capture_output=True, text=True, timeout=timeout, check=False
    )


def measured(results, asked):
    """The one record of what was asked for, what was said meanwhile, and the run's folder."""
    options = [*SMALL.split(), *asked.split(), "--launches", "1", "--json"]
    run = xfbench("run", *options, "--results", str(results))
    assert run.returncode == 0, run.stderr
    [record] = json.loads(run.stdout)["records"]
    assert record["status"] == "ok", record["reason"]
    [folder] = (results / "runs").iterdir()
    return record, run.stderr, folder


@pytest.mark.parametrize(
    ("framework", "strategy", "helpers"),
    [("mxnet", "dist_async", 3), ("tensorflow", "parameter_server", 2)],
)
def test_ranks_that_do_not_wait_are_measured_labelled_and_not_certified(
    tmp_path, framework, strategy, helpers
):
    asked = f"--framework {framework} --strategy {strategy} --strategy-options servers=2"
    record, said, folder = measured(tmp_path, asked)
    assert "not ranked, asynchronous: no rank waits for another" in said
    assert record["certificate"] is None
    assert record["request"]["strategy_options"] == {"servers": 2}
    assert record["communication"]["strategy_options"]["servers"] == 2
    started = json.loads((folder / "command.json").read_text())
    assert len(started) == helpers + 2
    assert (folder / f"stdout.{helpers + 1}").exists()

    measurement = record["measurement"]
    own = measurement["rank_step_seconds"]
    assert [len(steps) for steps in own] == [6, 6]
    assert measurement["images"] == 2 * 6 * 16
    for step, of_ranks in zip(measurement["step_seconds"], zip(*own, strict=True), strict=True):
        assert 2 / step == pytest.approx(sum(1 / seconds for seconds in of_ranks))
    # One batch again and again: the servers do update, and TensorFlow's are the same for all.
    assert measurement["losses"][-1] < measurement["losses"][0]
    for told in record["observed"]["exchange"]:
        own_updates, _, of_all, *_ = told.split()
        assert int(own_updates) < int(of_all)
    assert set(record["communication"]["waiting_seconds"]) == {0.0}
    assert record["communication"]["bytes_per_step"] == 2 * 2 * 4 * 431080

    shown = xfbench("leaderboard", "--results", str(tmp_path)).stdout
    assert f"2 {strategy} servers=2 (asynchronous)" in shown
    assert "not ranked" in shown and "none can be proven equal" in shown


def test_verify_says_why_there_is_no_proof():
    words = "--framework mxnet --workload lenet --ranks 2 --strategy dist_async --json"
    verify = xfbench("verify", *words.split())
    assert verify.returncode == 0, verify.stderr
    [verdict] = json.loads(verify.stdout)["verdicts"]
    assert verdict["verdict"] == "unsupported" and verdict["certificate"] is None
    assert verdict["reason"].startswith("asynchronous: ")


def test_a_double_is_no_number_for_mxnets_server(tmp_path):
    asked = "--framework mxnet --strategy dist_async --precision float64 --launches 1 --json"
    run = xfbench("run", *SMALL.split(), *asked.split(), "--results", str(tmp_path))
    [record] = json.loads(run.stdout)["records"]
    assert record["status"] == "unsupported" and "in float32" in record["reason"]


@pytest.mark.parametrize(
    ("options", "limits", "hook"),
    [
        ("bucket_size=auto", (2**20, 25 * 2**20), False),
        ("bucket_size=10kB", (10_000, 10_000), False),
        ("bucket_size=25MB,overlap=off", (25_000_000, 25_000_000), True),
    ],
)
def test_ddp_has_the_buckets_it_was_asked_for(tmp_path, options, limits, hook):
    """And those that `predict` takes it to have."""
    asked = f"--framework torch --no-verify --strategy-options {options}"
    record, _, _ = measured(tmp_path, asked)
    [told] = record["observed"]["exchange"]
    sizes = told.partition("buckets of ")[2].partition(" bytes")[0].split(",")
    expected = exchange.buckets(workloads()["lenet"].network, *limits, width=4)
    assert [int(size) for size in sizes] == [round(one.share * 4 * 431080) for one in expected]
    assert told.endswith("none") is not hook


def test_tensorflow_joins_as_much_at_once_as_it_was_asked_to(tmp_path):
    asked = "--framework tensorflow --no-verify --strategy-options bucket_size=10kB"
    record, _, _ = measured(tmp_path, asked)
    [told] = record["observed"]["exchange"]
    assert told == "the step that ran had CollectiveReduceV2 ×4"


def test_what_may_be_chosen_is_listed():
    listed = xfbench("framework", "list")
    assert "dist_async (asynchronous)" in listed.stdout
    assert "parameter_server (asynchronous)" in listed.stdout
    document = json.loads(xfbench("framework", "list", "--json").stdout)
    [mxnet] = [one for one in document["frameworks"] if one["name"] == "mxnet"]
    assert mxnet["asynchronous"] == ["dist_async"]
    assert mxnet["strategy_options"]["dist_async"]["servers"]["default"] == 1


def test_a_slip_in_an_option_is_told_on_one_line():
    asked = "--framework mxnet --strategy dist_async --strategy-options server=2"
    run = xfbench("run", *SMALL.split(), *asked.split())
    assert run.returncode == 2
    assert run.stderr.strip() == (
        "xfbench: unknown strategy option 'server': did you mean servers?"
    )
