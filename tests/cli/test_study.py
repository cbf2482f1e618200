"""`study` as a person uses it: listed, run, interrupted and gone on with, reported, added to."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests import turns
from xfbench import experiment

MINE = """
name = "mine"
title = "Batches of mine"
question = "Does a batch of mine matter?"
sources = ["Doe20"]
method = "It is tried."
limits = ["Nothing else is."]

[[matrix]]
size = "smoke"
framework = ["reference"]
workload = ["lenet"]
data = "synthetic"
batch_size = [2, 4]
steps = 2
warmup = 1
launches = 2

[[matrix]]
size = "smoke"
framework = ["reference"]
workload = ["alexnet"]
data = "digits"
steps = 2
launches = 2

[[analysis]]
name = "ratio"
title = "Speed-up by the batch"
over = "batch_size"
plot = "bars"
beside = "speed-up"

[[analysis.claim]]
source = "Doe20"
text = "A batch of 4 is 1 to 100 times as fast as one of 2"
where = { batch_size = 4 }
low = 1.0
high = 100.0

[[published]]
citation = { key = "Doe20", title = "On batches", where = "table 3" }
[published.figure]
quantity = "speed-up"
unit = "times"
low = 1.5
high = 2.5
relative_to = "a batch of 2"
about = { workload = "lenet", global_batch_size = 4 }
"""
STUDIES = [name for name in experiment.files() if name != "quick"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A study in a folder of one's own, by its name."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "mine.toml").write_text(MINE)
    monkeypatch.setenv("XFBENCH_STUDIES", str(folder))
    return "mine"


def records(folder):
    """What each record is of, and what came of it."""
    found = [json.loads(file.read_text()) for file in folder.glob("records/*/*.json")]
    return sorted((json.dumps(one["request"], sort_keys=True), one["status"]) for one in found)


def test_every_study_is_listed_with_its_question_and_sizes(xfbench, mine):
    listed = json.loads(xfbench("study", "list", "--json").stdout)["studies"]
    assert {one["name"] for one in listed} == {*experiment.names()}
    assert {"name", "title", "question", "citation", "sizes"} == set(listed[0])
    shown = xfbench("study", "list").stdout
    assert "thread-sweep" in shown and "Does a batch of mine matter?" in shown
    told = xfbench("study", "show", mine)
    assert told.returncode == 0, told.stderr
    assert "Doe20" in told.stdout and "1.5–2.5 times" in told.stdout


def test_a_study_of_ones_own_is_one_file_with_a_plot_and_what_was_published(
    xfbench, mine, tmp_path
):
    run = xfbench(*f"study run {mine} --no-verify --json".split())
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    [finding] = document["findings"]
    [value] = [one for one in finding["values"] if one["interval"]]
    assert value["interval"]["launches"] == 2 and value["label"] == "smoke"
    assert [one["verdict"] for one in finding["judged"]] != []
    [missing] = document["missing"]
    assert "alexnet" in missing["cell"] and "unsupported" in missing["reason"]

    page = xfbench(*f"study report {mine} --output mine.html".split())
    assert page.returncode == 0, page.stderr
    html = (tmp_path / "mine.html").read_text()
    assert html.count("<svg") == 1
    assert "published (Doe20, least)" in html and "published (Doe20, most)" in html
    for words in (
        *("Does a batch of mine matter?", "It is tried.", "1.5–2.5 times", "Doe20, table 3"),
        *("Nothing else is.", "a smoke test", "xfbench study run mine --size smoke"),
    ):
        assert words in html, words
    text = xfbench(*f"study report {mine} --output mine.md".split())
    assert text.returncode == 0
    assert "](mine-1.svg)" in (tmp_path / "mine.md").read_text()
    assert (tmp_path / "mine-1.svg").read_text().startswith("<svg xmlns")


PROBES = """
name = "mine"
title = "Probes of mine"
question = "What does the reference take?"
sources = ["Doe20"]

[[matrix]]
framework = ["reference"]
workload = ["lenet"]
data = "synthetic"
probe = ["process", "huge_pages"]
batch_size = [4]
threads = [1]
steps = 3
launches = 1

[[analysis]]
name = "support"

[[analysis.claim]]
source = "Doe20"
text = "It goes on after a signal"
where = { feature = "signal" }
low = 1.0
"""


def test_a_study_of_probes_is_run_resumed_told_again_and_sent_away(xfbench, mine, tmp_path):
    (tmp_path / "own" / "mine.toml").write_text(PROBES)
    run = xfbench(*f"study run {mine} --json".split())
    assert run.returncode == 0, run.stderr
    [finding] = json.loads(run.stdout)["findings"]
    assert ["checkpoint on SIGTERM, then on", "yes"] in finding["table"]
    assert [one["verdict"] for one in finding["judged"]] == ["holds"]
    xfbench(*"results export theirs.tar".split())
    again = xfbench(*f"study run {mine} --resume --json".split())
    assert json.loads(again.stdout)["findings"] == [finding]
    kept = [json.loads(file.read_text()) for file in tmp_path.glob("results/records/*/*.json")]
    assert [one["request"]["probe"] for one in kept if one["status"] == "ok"] == ["process"]
    told = xfbench(*f"study report {mine} --with theirs.tar --results nowhere --json".split())
    assert json.loads(told.stdout)["findings"] == [finding], told.stderr
    checked = xfbench("results", "validate", "results")
    assert checked.returncode == 0, checked.stdout
    board = json.loads(xfbench("leaderboard", "--json").stdout)
    assert board["tables"] == []


def test_a_probe_that_crashes_is_a_finding_and_no_failure(xfbench, mine, fake_adapter, tmp_path):
    fake_adapter("os._exit(7)")
    (tmp_path / "own" / "mine.toml").write_text(PROBES.replace('"reference"', '"odd"'))
    run = xfbench(*f"study run {mine} --json".split())
    assert run.returncode == 0, run.stderr
    [finding] = json.loads(run.stdout)["findings"]
    assert ["checkpoint on SIGTERM, then on", "no"] in finding["table"]
    assert [one["verdict"] for one in finding["judged"]] == ["does not hold"]


def test_a_dry_run_says_how_long_it_takes_once_something_is_known(xfbench, mine):
    shown = xfbench(*f"study run {mine} --dry-run".split())
    assert shown.returncode == 0, shown.stderr
    first, *cells = shown.stdout.splitlines()
    assert first == "3 cells, 6 launches at most; time: not known"
    assert sum("unsupported" in one or "one-channel" in one for one in cells) == 1
    xfbench(*f"study run {mine} --no-verify --launches 1".split())
    known = json.loads(xfbench(*f"study run {mine} --dry-run --json".split()).stdout)
    assert known["launches"] == 6 and len(known["cells"]) == 3
    assert known["estimate"]["unknown"] == 0 and known["estimate"]["seconds"] > 0
    left = json.loads(xfbench(*f"study run {mine} --dry-run --resume --json".split()).stdout)
    assert left["launches"] == 4


def test_somebody_elses_records_are_told_too(xfbench, mine):
    there = xfbench(*f"study run {mine} --no-verify --launches 1 --results there".split())
    assert there.returncode == 0, there.stderr
    xfbench(*"results export theirs.tar --results there".split())
    shown = xfbench(*f"study report {mine} --with theirs.tar --json".split())
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["launches"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("show thread-swep", "did you mean thread-sweep"),
        ("run nowhere.toml", "unknown experiment"),
        ("run thread-sweep --size smok", "did you mean smoke"),
        ("run thread-sweep --framework reference", "has none of reference"),
        ("run storage --medium nvme", "NAME=DIR"),
        ("run storage --medium nvme=nowhere", "no such folder"),
        ("run thread-sweep --launches 1,2", "one number"),
        ("run hpc-support --framework reference", "has none of reference"),
        ("report thread-sweep", "holds no results"),
        ("report thread-sweep --output t.pdf", "FILE.html or FILE.md"),
    ],
)
def test_a_wrong_line_is_one_line_and_exit_2(xfbench, arguments, words):
    shown = xfbench("study", *arguments.split())
    assert shown.returncode == 2
    assert len(shown.stderr.strip().splitlines()) == 1, shown.stderr
    assert words in shown.stderr


def _interrupted(mine, folder, how, delay):
    """Run it until `delay` seconds after its first launch, and let it go on."""
    line = [
        *("env", "--default-signal=INT", sys.executable, "-m", "xfbench", "study", "run", mine),
        *("--no-verify", "--results", str(folder)),
    ]
    with subprocess.Popen(
        line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        for told in process.stderr:
            if told.startswith("1/"):
                break
        time.sleep(delay)
        process.send_signal(how)
        process.communicate(timeout=60)
    again = subprocess.run(
        [*line, "--resume"], capture_output=True, text=True, timeout=120, check=False
    )
    assert again.returncode == 0, again.stderr


def _trials(mine, tmp_path, count, seed):
    whole = tmp_path / "whole"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "xfbench", "study", "run", mine, "--no-verify"),
            *("--results", str(whole)),
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    chance = random.Random(seed)
    for trial in range(count):
        folder = tmp_path / f"trial-{trial}"
        how = chance.choice([signal.SIGINT, signal.SIGKILL])
        _interrupted(mine, folder, how, chance.uniform(0, 4))
        # What cannot be done costs nothing, and may be told again.
        assert sorted(set(records(folder))) == records(whole), (trial, how)


def test_a_study_that_was_interrupted_and_resumed_has_the_same_records(mine, tmp_path):
    _trials(mine, tmp_path, count=1, seed=1)


@pytest.mark.long
def test_wherever_it_was_interrupted(mine, tmp_path):
    _trials(mine, tmp_path, count=10, seed=2)


@pytest.mark.parametrize("name", ["thread-sweep", "data-format"])
def test_a_built_in_study_runs_to_its_end(xfbench, name):
    line = f"study run {name} --framework torch --launches 1 --no-verify --json"
    shown = xfbench(*line.split())
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["size"] == "smoke" and document["launches"] >= 1
    assert document["findings"][0]["values"]
    assert all(one["interval"] for one in document["findings"][0]["values"])


def test_one_study_a_day_runs_to_its_end(xfbench):
    [name] = turns.todays(STUDIES, len(STUDIES))
    shown = xfbench(*f"study run {name} --launches 1 --no-verify --json".split())
    assert shown.returncode in (0, 1), shown.stderr  # a launch may be spoiled by other work
    document = json.loads(shown.stdout)
    assert document["launches"] > 0, name
    assert all(finding["sentence"] for finding in document["findings"])


@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_to_its_end_at_its_smallest_size(xfbench, name, tmp_path):
    shown = subprocess.run(
        [sys.executable, "-m", "xfbench", "study", "run", name, "--json"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["launches"] > 0
    assert all(finding["sentence"] for finding in document["findings"])
