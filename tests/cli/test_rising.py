"""Batches up to the end of memory, as a person uses it: found, foreseen, gone on with, reported."""

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
def end(tmp_path, monkeypatch):
    """A study whose batches rise, by its name."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/end.toml").write_text(STUDY)
    monkeypatch.setenv("XFBENCH_STUDIES", str(tmp_path / "own"))
    return "end"


def launches(folder):
    """Of each batch, how many launches were ok and how many were out of memory."""
    found = {}
    for file in folder.glob("records/*/*.json"):
        one = json.loads(file.read_text())
        size = one["request"]["global_batch_size"]
        ran, out = found.get(size, (0, 0))
        ok = one["status"] == "ok"
        assert ok or one["reason"].startswith("out of memory: "), one["reason"]
        assert one["request"]["memory_limit"] == 200_000_000
        found[size] = (ran + ok, out + (not ok))
    return dict(sorted(found.items()))


@pytest.mark.deep
def test_the_end_of_memory_is_found_once(xfbench, here, end, tmp_path):
    run = xfbench(*f"study run {end} --no-verify --json".split())
    assert run.returncode == 0, run.stderr
    tried = launches(tmp_path / "results")
    largest = max(size for size, (ran, _) in tried.items() if ran)
    least = min(size for size, (_, out) in tried.items() if out)
    assert largest < least and least - largest <= 0.25 * largest
    # Batches that double get the launches of the study, the others one.
    doubled = [128 * 2**n for n in range(8)]
    assert all(ran == (2 if size in doubled else 1) for size, (ran, out) in tried.items() if ran)

    document = json.loads(run.stdout)
    ratio, stops, memory, growth = document["findings"]
    assert {int(one["fields"]["batch_size"]) for one in ratio["values"]} <= set(doubled)
    [value] = memory["values"]
    assert value["interval"]["value"] == largest
    assert f"at {least}: out of memory: " in value["note"] and "200 MB" in value["note"]
    assert memory["judged"][0]["verdict"] == "holds"
    assert stops["values"][0]["interval"] and growth["values"][0]["interval"]
    assert document["missing"] == []

    again = xfbench(*f"study run {end} --no-verify --resume --json".split())
    assert again.returncode == 0, again.stderr
    assert launches(tmp_path / "results") == tried
    text = here(*f"study report {end}".split()).stdout
    assert f"{largest} images run, {least} do not" in text


def test_a_dry_run_leaves_the_batches_open(here, end):
    shown = here(*f"study run {end} --dry-run".split())
    assert shown.returncode == 0, shown.stderr
    assert "are not known beforehand" in shown.stdout
    assert "batch 128 and on, doubled until a launch is out of memory" in shown.stdout
    assert "memory 200 MB a rank · at most 17 launches" in shown.stdout
    told = json.loads(here(*f"study run {end} --dry-run --json".split()).stdout)
    [one] = told["found_out"]
    assert one["launches_at_most"] == 17 and one["batch_size"]["from"] == 128
    assert "batch_size from 128 until out of memory" in here("study", "show", end).stdout


def test_the_memory_limit_is_an_option_or_what_is_available(here, end, tmp_path):
    line = f"study run {end} --dry-run --json".split()
    [one] = json.loads(here(*line, "--memory-limit", "3GB").stdout)["found_out"]
    assert one["cell"]["memory_limit"] == 3 * 10**9
    file = tmp_path / "own/end.toml"
    file.write_text(STUDY.replace('memory_limit = "200MB"', ""))
    [one] = json.loads(here(*line).stdout)["found_out"]
    assert one["cell"]["memory_limit"] % 2**28 == 0


def test_a_run_is_held_to_its_memory_limit(xfbench, here):
    line = "run --framework reference --workload lenet --batch-size 64 --steps 1 --warmup 0"
    line += " --launches 1 --threads 1 --no-verify --memory-limit 100MB --json"
    shown = xfbench(*line.split())
    assert shown.returncode == 1
    assert '"out of memory: ' in shown.stdout
    wrong = here("run", "--memory-limit", "much")
    assert wrong.returncode == 2 and "--memory-limit much" in wrong.stderr
