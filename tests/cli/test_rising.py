"""Tests of a study that raises the batch size until a launch is out of memory."""

import json

import pytest

STUDY = """
name = "end"
title = "The end"
question = "Where is it?"
sources = ["Doe20"]
method = "It is tried."

[[matrix]]
size = "smoke"
framework = ["reference"]
workload = ["lenet"]
data = "synthetic"
threads = [1]
batch_size = { from = 128, until = "out of memory", within = 0.25, most = 8192 }
memory_limit = "200MB"
steps = 1
warmup = 0
launches = 2

[[analysis]]
name = "ratio"
over = "batch_size"
against = "previous"
[[analysis]]
name = "stops_growing"
[[analysis]]
name = "out_of_memory"
[[analysis.claim]]
source = "Doe20"
text = "It ends before 8192"
high = 8191
[[analysis]]
name = "memory_per_image"
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The name of a study that raises the batch size."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/end.toml").write_text(STUDY)
    monkeypatch.setenv("XFBENCH_STUDIES", str(tmp_path / "own"))
    return "end"


def count_launches(folder):
    """Return the numbers of ok and out-of-memory launches by batch size."""
    counts = {}
    for file in folder.glob("records/*/*.json"):
        record = json.loads(file.read_text())
        batch_size = record["request"]["global_batch_size"]
        ok_count, out_of_memory_count = counts.get(batch_size, (0, 0))
        is_ok = record["status"] == "ok"
        assert is_ok or record["reason"].startswith("out of memory: "), record["reason"]
        assert record["request"]["memory_limit"] == 200_000_000
        counts[batch_size] = (ok_count + is_ok, out_of_memory_count + (not is_ok))
    return dict(sorted(counts.items()))


@pytest.mark.deep
def test_the_largest_batch_is_found_and_not_searched_again(
    run_process, run_inline, study, tmp_path
):
    run = run_process(*f"study run {study} --no-verify --json".split())
    assert run.returncode == 0, run.stderr
    counts = count_launches(tmp_path / "results")
    largest = max(size for size, (ok_count, _) in counts.items() if ok_count)
    smallest_failing = min(
        size for size, (_, out_of_memory_count) in counts.items() if out_of_memory_count
    )
    assert largest < smallest_failing and smallest_failing - largest <= 0.25 * largest
    # Doubled batch sizes get all launches of the study, the others one.
    doubled_sizes = [128 * 2**n for n in range(8)]
    assert all(
        ok_count == (2 if size in doubled_sizes else 1)
        for size, (ok_count, out) in counts.items()
        if ok_count
    )

    document = json.loads(run.stdout)
    ratio, stops, memory, growth = document["findings"]
    assert {int(point["fields"]["batch_size"]) for point in ratio["values"]} <= set(doubled_sizes)
    [value] = memory["values"]
    assert value["interval"]["value"] == largest
    assert (
        f"batch {smallest_failing}: out of memory: " in value["note"] and "200 MB" in value["note"]
    )
    assert memory["judged"][0]["verdict"] == "holds"
    assert stops["values"][0]["interval"] and growth["values"][0]["interval"]
    assert document["missing"] == []

    resumed = run_process(*f"study run {study} --no-verify --resume --json".split())
    assert resumed.returncode == 0, resumed.stderr
    assert count_launches(tmp_path / "results") == counts
    text = " ".join(run_inline(*f"study report {study}".split()).stdout.split())
    assert f"{smallest_failing} does not" in text and f"fits is {largest} (" in text


def test_dry_run_describes_the_batch_search(run_inline, study):
    outcome = run_inline(*f"study run {study} --dry-run".split())
    assert outcome.returncode == 0, outcome.stderr
    assert "are unknown in advance" in outcome.stdout
    assert "batch from 128, doubled until a launch is out of memory" in outcome.stdout
    assert "memory 200 MB per rank · at most 17 launches" in outcome.stdout
    plan = json.loads(run_inline(*f"study run {study} --dry-run --json".split()).stdout)
    [search] = plan["found_out"]
    assert search["launches_at_most"] == 17 and search["batch_size"]["from"] == 128
    assert "batch_size from 128 until out of memory" in run_inline("study", "show", study).stdout


def test_memory_limit_is_the_option_or_the_available_memory(run_inline, study, tmp_path):
    line = f"study run {study} --dry-run --json".split()
    [search] = json.loads(run_inline(*line, "--memory-limit", "3GB").stdout)["found_out"]
    assert search["cell"]["memory_limit"] == 3 * 10**9
    file = tmp_path / "own/end.toml"
    file.write_text(STUDY.replace('memory_limit = "200MB"', ""))
    [search] = json.loads(run_inline(*line).stdout)["found_out"]
    assert search["cell"]["memory_limit"] % 2**28 == 0


def test_a_run_is_held_to_its_memory_limit(run_process, run_inline):
    line = "run --framework reference --workload lenet --batch-size 64 --steps 1 --warmup 0"
    line += " --launches 1 --threads 1 --no-verify --memory-limit 100MB --json"
    limited_run = run_process(*line.split())
    assert limited_run.returncode == 1
    assert '"out of memory: ' in limited_run.stdout
    refused = run_inline("run", "--memory-limit", "much")
    assert refused.returncode == 2 and "--memory-limit much" in refused.stderr
