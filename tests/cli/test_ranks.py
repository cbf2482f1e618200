"""Test of `run --ranks` with a real framework, up to a ranked table with efficiencies."""

import json
import statistics
import subprocess
import sys

import pytest


@pytest.mark.deep
def test_two_ranks_are_certified_and_have_an_efficiency(tmp_path):
    options = "--framework torch --workload lenet --ranks 1,2 --scaling strong --threads 1"
    options += " --steps 8 --min-time 1 --warmup-time 0.5 --launches 3 --json"
    xfbench = [sys.executable, "-m", "xfbench"]
    results = ["--results", str(tmp_path / "results")]
    command = [*xfbench, "run", *options.split(), *results]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    records = json.loads(run.stdout)["records"]
    assert [record["status"] for record in records] == ["ok"] * 6
    assert all(record["certificate"] for record in records)
    two_rank_record = next(record for record in records if record["request"]["ranks"] == 2)
    assert two_rank_record["request"]["strategy"] == "ddp"
    assert two_rank_record["request"]["batch_size_per_rank"] == 32
    assert len(two_rank_record["observed"]["ranks"]) == 2
    for record in records:
        measurement = record["measurement"]
        assert measurement["images"] == 64 * len(measurement["step_seconds"]) >= 8 * 64
        # The first rank estimates how many more steps take the requested time.
        warmup_seconds, step_seconds = measurement["warmup_seconds"], measurement["step_seconds"]
        warmup_steps = record["request"]["warmup"]
        assert len(warmup_seconds) > warmup_steps or sum(warmup_seconds) >= 0.5
        assert len(step_seconds) > 8 or sum(step_seconds) >= 1
    leaderboard = subprocess.run(
        [*xfbench, "leaderboard", "--json", *results],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    [table] = json.loads(leaderboard.stdout)["tables"]
    assert table["scaling"] == "strong"
    rows = {row["ranks"]: row for row in table["rows"]}
    assert rows[1]["efficiency"]["value"] == 1
    step_medians = {
        (record["request"]["ranks"], record["request"]["launch"]): statistics.median(
            record["measurement"]["step_seconds"]
        )
        for record in records
    }
    speedups = [step_medians[1, launch] / step_medians[2, launch] for launch in (1, 2, 3)]
    efficiency = rows[2]["efficiency"]
    assert efficiency["law"] == "strong" and efficiency["baseline_ranks"] == 1
    assert efficiency["value"] == pytest.approx(statistics.geometric_mean(speedups) / 2)
    assert efficiency["low"] < efficiency["value"] < efficiency["high"]
    compared = subprocess.run(
        [*xfbench, "compare", "ranks=2", "ranks=1", "--json", *results],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    [comparison] = json.loads(compared.stdout)["comparisons"]
    assert comparison["ratio"]["value"] == pytest.approx(statistics.geometric_mean(speedups))
    assert comparison["verdict"] and comparison["paired"]
