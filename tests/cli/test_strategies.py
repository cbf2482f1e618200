"""Tests of asynchronous strategies on real frameworks, and of strategy options."""

import json

import pytest

from xfbench.model import communication_cost
from xfbench.workloads import workloads

SMALL = "--workload lenet --ranks 2 --scaling weak --batch-size 16 --threads 1 --steps 6"


@pytest.fixture
def measure(run_process, tmp_path):
    """A function that runs one launch and returns its record, the messages and its run folder."""

    def run(options):
        outcome = run_process("run", *SMALL.split(), *options.split(), "--launches", "1", "--json")
        assert outcome.returncode == 0, outcome.stderr
        [record] = json.loads(outcome.stdout)["records"]
        assert record["status"] == "ok", record["reason"]
        [folder] = (tmp_path / "results" / "runs").iterdir()
        return record, outcome.stderr, folder

    return run


@pytest.mark.deep
@pytest.mark.parametrize(
    ("framework", "strategy", "helpers"),
    [("mxnet", "dist_async", 3), ("tensorflow", "parameter_server", 2)],
)
def test_asynchronous_ranks_are_measured_and_not_certified(
    measure, run_inline, framework, strategy, helpers
):
    record, messages, folder = measure(
        f"--framework {framework} --strategy {strategy} --strategy-options servers=2"
    )
    assert "not ranked, asynchronous: no rank waits for another" in messages
    assert record["certificate"] is None
    assert record["request"]["strategy_options"] == {"servers": 2}
    assert record["communication"]["strategy_options"]["servers"] == 2
    commands = json.loads((folder / "command.json").read_text())
    assert len(commands) == helpers + 2
    assert (folder / f"stdout.{helpers + 1}").exists()

    measurement = record["measurement"]
    rank_seconds = measurement["rank_step_seconds"]
    assert [len(steps) for steps in rank_seconds] == [6, 6]
    assert measurement["images"] == 2 * 6 * 16
    for step, seconds_by_rank in zip(
        measurement["step_seconds"], zip(*rank_seconds, strict=True), strict=True
    ):
        assert 2 / step == pytest.approx(sum(1 / seconds for seconds in seconds_by_rank))
    # Every step has the same batch, so a falling loss shows that the servers update.
    assert measurement["losses"][-1] < measurement["losses"][0]
    for exchange_text in record["observed"]["exchange"]:
        own_updates, _, all_updates, *_ = exchange_text.split()
        assert int(own_updates) < int(all_updates)
    assert set(record["communication"]["waiting_seconds"]) == {0.0}
    assert record["communication"]["bytes_per_step"] == 2 * 2 * 4 * 431080

    table = run_inline("leaderboard").stdout
    assert f"2 {strategy} servers=2 (asynchronous)" in table
    assert "not ranked" in table and "cannot be verified" in " ".join(table.split())


def test_verify_says_why_it_cannot_prove_asynchrony(run_inline):
    words = "--framework mxnet --workload lenet --ranks 2 --strategy dist_async --json"
    verify = run_inline("verify", *words.split())
    assert verify.returncode == 0, verify.stderr
    [verdict] = json.loads(verify.stdout)["verdicts"]
    assert verdict["verdict"] == "unsupported" and verdict["certificate"] is None
    assert verdict["reason"].startswith("asynchronous: ")


def test_float64_is_unsupported_by_mxnets_server(run_inline):
    options = "--framework mxnet --strategy dist_async --precision float64 --launches 1 --json"
    run = run_inline("run", *SMALL.split(), *options.split())
    [record] = json.loads(run.stdout)["records"]
    assert record["status"] == "unsupported" and "in float32" in record["reason"]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("options", "limits", "hook"),
    [
        ("bucket_size=auto", (2**20, 25 * 2**20), False),
        ("bucket_size=10kB", (10_000, 10_000), False),
        ("bucket_size=25MB,overlap=off", (25_000_000, 25_000_000), True),
    ],
)
def test_ddp_has_the_buckets_that_predict_expects(measure, options, limits, hook):
    record, _, _ = measure(f"--framework torch --no-verify --strategy-options {options}")
    [exchange_text] = record["observed"]["exchange"]
    sizes = exchange_text.partition("buckets of ")[2].partition(" bytes")[0].split(",")
    expected = communication_cost.gradient_buckets(
        workloads()["lenet"].network, *limits, value_bytes=4
    )
    assert [int(size) for size in sizes] == [
        round(bucket.share * 4 * 431080) for bucket in expected
    ]
    assert exchange_text.endswith("none") is not hook


@pytest.mark.deep
def test_tensorflow_joins_gradients_up_to_the_bucket_size(measure):
    record, _, _ = measure("--framework tensorflow --no-verify --strategy-options bucket_size=10kB")
    [exchange_text] = record["observed"]["exchange"]
    assert exchange_text == "the executed step contains CollectiveReduceV2 ×4"


def test_the_framework_list_has_strategies_and_their_options(run_inline, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # no field is wrapped
    outcome = run_inline("framework", "list")
    assert "dist_async (asynchronous)" in outcome.stdout
    assert "parameter_server (asynchronous)" in outcome.stdout
    document = json.loads(run_inline("framework", "list", "--json").stdout)
    [mxnet] = [framework for framework in document["frameworks"] if framework["name"] == "mxnet"]
    assert mxnet["asynchronous"] == ["dist_async"]
    assert mxnet["strategy_options"]["dist_async"]["servers"]["default"] == 1


def test_a_wrong_strategy_option_is_one_line(run_inline):
    options = "--framework mxnet --strategy dist_async --strategy-options server=2"
    run = run_inline("run", *SMALL.split(), *options.split())
    assert run.returncode == 2
    assert run.stderr.strip() == (
        "xfbench: unknown strategy option 'server': did you mean servers?"
    )
