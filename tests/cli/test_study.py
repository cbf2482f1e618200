"""`study` as a person uses it: listed, run, interrupted and resumed, reported, added to."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

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


@pytest.fixture(scope="module")
def own_studies(tmp_path_factory):
    """A folder of studies with one in it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.toml").write_text(MINE)
    return folder


@pytest.fixture
def mine(own_studies, monkeypatch):
    """The name of a study in the user's folder."""
    monkeypatch.setenv("XFBENCH_STUDIES", str(own_studies))
    return "mine"


@pytest.fixture(scope="module")
def measured(own_studies, tmp_path_factory):
    """The answer of the study and its results folder; tests work on copies."""
    folder = tmp_path_factory.mktemp("measured") / "results"
    done = run_study(own_studies, folder, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


@pytest.fixture
def results(measured, tmp_path):
    """A copy of these results in the folder of the command."""
    return shutil.copytree(measured[1], tmp_path / "results")


def study_command(folder, *options):
    # Tests that run in the background ignore Ctrl-C, and so would the command.
    xfbench = ["env", "--default-signal=INT", sys.executable, "-m", "xfbench"]
    return [*xfbench, *"study run mine --no-verify --results".split(), str(folder), *options]


def run_study(own_studies, folder, *options):
    return subprocess.run(
        study_command(folder, *options),
        env={**os.environ, "XFBENCH_STUDIES": str(own_studies)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def requests_and_statuses(folder):
    records = [json.loads(file.read_text()) for file in folder.glob("records/*/*.json")]
    return sorted((json.dumps(one["request"], sort_keys=True), one["status"]) for one in records)


def test_every_study_is_listed_with_question_and_sizes(run_inline, mine):
    studies = json.loads(run_inline("study", "list", "--json").stdout)["studies"]
    assert {one["name"] for one in studies} == {*experiment.names()}
    assert {"name", "title", "question", "citation", "sizes"} == set(studies[0])
    shown = run_inline("study", "list").stdout
    assert "thread-sweep" in shown and "Does a batch of mine matter?" in shown


def test_show_has_the_published_figures_of_a_study(run_inline, mine):
    shown = run_inline("study", "show", mine)
    assert shown.returncode == 0, shown.stderr
    assert "Doe20" in shown.stdout and "1.5–2.5 times" in shown.stdout


def test_a_study_answers_its_question_and_names_what_is_missing(measured):
    document, _ = measured
    [finding] = document["findings"]
    [value] = [one for one in finding["values"] if one["interval"]]
    assert value["interval"]["launches"] == 2 and value["label"] == "smoke"
    assert [one["verdict"] for one in finding["judged"]] != []
    [missing] = document["missing"]
    assert "alexnet" in missing["cell"] and "unsupported" in missing["reason"]


def test_a_report_in_html_has_plot_and_published_figures(run_inline, mine, results, tmp_path):
    page = run_inline(*f"study report {mine} --output mine.html".split())
    assert page.returncode == 0, page.stderr
    html = (tmp_path / "mine.html").read_text()
    assert html.count("<svg") == 1
    assert "published (Doe20, least)" in html and "published (Doe20, most)" in html
    for words in (
        *("Does a batch of mine matter?", "It is tried.", "1.5–2.5 times", "Doe20, table 3"),
        *("Nothing else is.", "a smoke test", "xfbench study run mine --size smoke"),
    ):
        assert words in html, words


def test_a_report_in_markdown_has_its_plots_beside_it(run_inline, mine, results, tmp_path):
    text = run_inline(*f"study report {mine} --output mine.md".split())
    assert text.returncode == 0
    assert "](mine-1.svg)" in (tmp_path / "mine.md").read_text()
    assert (tmp_path / "mine-1.svg").read_text().startswith("<svg xmlns")


def test_a_dry_run_without_results_cannot_estimate_the_time(run_inline, mine):
    shown = run_inline(*f"study run {mine} --dry-run".split())
    assert shown.returncode == 0, shown.stderr
    first, *cells = shown.stdout.splitlines()
    assert first == "3 cells, 6 launches at most; time: not known"
    assert sum("unsupported" in one or "one-channel" in one for one in cells) == 1


def test_a_dry_run_estimates_the_time_from_earlier_launches(run_inline, mine, results):
    known = json.loads(run_inline(*f"study run {mine} --dry-run --json".split()).stdout)
    assert known["launches"] == 6 and len(known["cells"]) == 3
    assert known["estimate"]["unknown"] == 0 and known["estimate"]["seconds"] > 0


def test_a_dry_run_resumes_what_is_missing(run_inline, mine, results):
    [file] = [
        file
        for file in results.glob("records/*/*.json")
        if (one := json.loads(file.read_text()))["request"]["global_batch_size"] == 2
        and one["request"]["launch"] == 1
    ]
    file.unlink()
    left = json.loads(run_inline(*f"study run {mine} --dry-run --resume --json".split()).stdout)
    unsupported = 2
    assert left["launches"] == 1 + unsupported


def test_a_report_includes_the_records_of_others(run_inline, mine, results):
    run_inline(*"results export theirs.tar".split())
    line = f"study report {mine} --results nowhere --with theirs.tar --json"
    shown = run_inline(*line.split())
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["launches"] == 4


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


@pytest.fixture
def probes(tmp_path, monkeypatch):
    """A function that writes a study of probes of this framework; its name."""

    def write(framework):
        folder = tmp_path / "own"
        folder.mkdir()
        text = PROBES.replace("reference", framework)
        (folder / "mine.toml").write_text(text)
        monkeypatch.setenv("XFBENCH_STUDIES", str(folder))
        return "mine"

    return write


@pytest.mark.deep
def test_a_study_of_probes_is_run_resumed_and_exported(xfbench, run_inline, probes, tmp_path):
    name = probes("reference")
    run = xfbench(*f"study run {name} --json".split())
    assert run.returncode == 0, run.stderr
    [finding] = json.loads(run.stdout)["findings"]
    assert ["checkpoint on SIGTERM, then resume", "yes"] in finding["table"]
    assert [one["verdict"] for one in finding["judged"]] == ["holds"]
    run_inline(*"results export theirs.tar".split())
    again = xfbench(*f"study run {name} --resume --json".split())
    assert json.loads(again.stdout)["findings"] == [finding]
    kept = [json.loads(file.read_text()) for file in tmp_path.glob("results/records/*/*.json")]
    assert [one["request"]["probe"] for one in kept if one["status"] == "ok"] == ["process"]
    shown = run_inline(*f"study report {name} --with theirs.tar --results nowhere --json".split())
    assert json.loads(shown.stdout)["findings"] == [finding], shown.stderr
    checked = run_inline("results", "validate", "results")
    assert checked.returncode == 0, checked.stdout
    assert json.loads(run_inline("leaderboard", "--json").stdout)["tables"] == []


@pytest.mark.deep
def test_crashed_probe_is_a_finding_not_a_failure(xfbench, probes, fake_adapter):
    fake_adapter("os._exit(7)")
    run = xfbench(*f"study run {probes('odd')} --json".split())
    assert run.returncode == 0, run.stderr
    [finding] = json.loads(run.stdout)["findings"]
    assert ["checkpoint on SIGTERM, then resume", "no"] in finding["table"]
    assert [one["verdict"] for one in finding["judged"]] == ["does not hold"]


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
        ("report thread-sweep", "has no results"),
        ("report thread-sweep --output t.pdf", "FILE.html or FILE.md"),
    ],
)
def test_invalid_study_arguments_give_one_line_and_exit_2(run_inline, arguments, words):
    shown = run_inline("study", *arguments.split())
    assert shown.returncode == 2
    assert len(shown.stderr.strip().splitlines()) == 1, shown.stderr
    assert words in shown.stderr


def interrupt_and_resume(own_studies, folder, sent, delay):
    """Run the study, signal it `delay` seconds after its first launch, and resume it."""
    with subprocess.Popen(
        study_command(folder),
        env={**os.environ, "XFBENCH_STUDIES": str(own_studies)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        for line in process.stderr:
            if line.startswith("1/"):
                break
        time.sleep(delay)
        process.send_signal(sent)
        process.communicate(timeout=60)
    again = run_study(own_studies, folder, "--resume")
    assert again.returncode == 0, again.stderr


@pytest.mark.deep
def test_resumed_study_has_the_same_records(own_studies, measured, tmp_path):
    interrupt_and_resume(own_studies, tmp_path / "resumed", signal.SIGKILL, delay=0.5)
    # What cannot be done costs nothing, and may be recorded again.
    resumed = sorted(set(requests_and_statuses(tmp_path / "resumed")))
    assert resumed == requests_and_statuses(measured[1])


@pytest.mark.long
@pytest.mark.parametrize("trial", range(10))
def test_a_study_resumes_wherever_it_was_interrupted(own_studies, measured, tmp_path, trial):
    chance = random.Random(trial)
    sent = chance.choice([signal.SIGINT, signal.SIGKILL])
    interrupt_and_resume(own_studies, tmp_path / "resumed", sent, delay=chance.uniform(0, 4))
    resumed = sorted(set(requests_and_statuses(tmp_path / "resumed")))
    assert resumed == requests_and_statuses(measured[1])
