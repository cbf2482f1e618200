"""Tests of `xfbench tune` and `run --tuned`: search, save, reuse and resume."""

import json
from functools import partial

import pytest

from tests import fake_framework, sample_records
from xfbench.host import machine
from xfbench.model.machines import machine_class
from xfbench.store import tuning_results
from xfbench.store.results_folder import Store

# The clock is simulated. The kernel `quick` is the fastest, and `broken` cannot be built.
TRAINER = """
import itertools
from xfbench.worker import loop
SECONDS = {"plain": 0.05, "quick": 0.025, "slow": 0.1}
now, reads = 0.0, itertools.count()
core_latency.CoreLatencyProbe.seconds = lambda self: 2e-7
loop.perf_counter = lambda: now + 1e-9 * next(reads)
class Trainer(FakeTrainer):
    def __init__(self, options, group):
        super().__init__(options, group)
        self.seconds = SECONDS[options.kernel]
    def step(self, batch):
        global now
        now += self.seconds
"""
KERNELS = {name: {"title": name} for name in ("plain", "quick", "slow", "broken")}
SMALL = "--framework odd --workload lenet --batch-size 4 --data synthetic"
CORES = machine.usable_cores()
OVER = f"--over pinning=none --over allocator=system --over threads={CORES}"
TUNE = f"tune {SMALL} --steps 4 --warmup 0 {OVER}"


@pytest.fixture
def odd_framework(fake_adapter, tmp_path_factory, monkeypatch):
    fake_adapter(TRAINER, kernels=KERNELS)
    cache = fake_framework.make_cache(tmp_path_factory.mktemp("home") / "cache")
    monkeypatch.setenv("XFBENCH_HOME", str(cache))  # where searches store core-to-core latencies


def read_records(folder):
    """Return the stored records by id."""
    documents = [json.loads(file.read_text()) for file in folder.glob("records/*/*.json")]
    return {document["id"]: document for document in documents}


def test_show_prints_the_last_confirmed_search(run_inline, cell, tmp_path):
    torch_cell = partial(cell, framework="torch", environment="managed", kernel="onednn")
    tuning = sample_records.build_tuning(torch_cell(threads=2), torch_cell(threads=1))
    line = "tune --framework torch --workload lenet --show"
    outcome = run_inline(*line.split())  # no search yet
    assert outcome.returncode == 1
    assert f"{tmp_path}/results has no confirmed result of" in outcome.stderr
    assert "give another results folder with --results" in outcome.stderr
    tuning.write(tmp_path / "results")
    outcome = run_inline(*line.split())
    assert outcome.returncode == 0, outcome.stderr
    assert "xfbench run --framework torch" in outcome.stdout and "[[matrix]]" in outcome.stdout
    assert "setenv OMP_NUM_THREADS 2" in outcome.stdout and "newer search" not in outcome.stderr


def test_show_says_that_a_newer_search_is_open(run_inline, cell, tmp_path):
    torch_cell = partial(cell, framework="torch", environment="managed", kernel="onednn")
    results = tmp_path / "results"
    sample_records.build_tuning(torch_cell(threads=2), torch_cell(threads=1)).write(results)
    subject = "torch", "lenet", "cpu", "float32", machine_class(machine.describe_machine())
    command = "xfbench tune --framework torch --workload lenet --resume"
    search = tuning_results.OpenSearch(started="2026-11-29T00:00:00.000Z", command=command)
    tuning_results.write_open_search(results, subject, search)
    outcome = run_inline(*"tune --framework torch --workload lenet --show".split())
    assert outcome.returncode == 0 and "[[matrix]]" in outcome.stdout
    assert "a newer search, started 2026-11-29T00:00:00.000Z, is not finished" in outcome.stderr
    assert f"continue it: {command}\n" in outcome.stderr
    outcome = run_inline(*"tune --framework mxnet --workload lenet --show".split())
    assert outcome.returncode == 1 and "newer search" not in outcome.stderr


def test_show_tells_what_an_unconfirmed_search_knows(run_inline, cell, tmp_path):
    torch_cell = partial(cell, framework="torch", environment="managed", kernel="onednn")
    best, default = torch_cell(threads=2), torch_cell(threads=1)
    rung = tuning_results.RungDone(settings=8, launches=1, steps=5)
    unfinished = {"confirmed": False, "settings": 8, "untried": 5, "rungs": (rung,)}
    sample_records.build_tuning(best, default, **unfinished).write(tmp_path / "results")
    outcome = run_inline(*"tune --framework torch --workload lenet --show".split())
    assert outcome.returncode == 1 and outcome.stderr == ""
    assert "3 of 8 settings tried: no best is known; continue with --resume" in outcome.stdout
    assert "fastest so far: onednn · 2 threads" in outcome.stdout
    outcome = run_inline(*"tune --framework torch --workload lenet --show --json".split())
    assert outcome.returncode == 1 and json.loads(outcome.stdout)["untried"] == 5


def test_show_tells_what_an_interrupted_search_knows(run_inline, record, tmp_path):
    results = tmp_path / "results"
    store = Store(results)
    store.create_and_check_folders()
    settings = {"framework": "torch", "kernel": "onednn"}
    fast, slow = (
        record(threads=threads, steps=(seconds, seconds), **settings)
        for threads, seconds in ((2, 0.01), (1, 0.02))
    )
    for launch in (fast, slow):
        store.add(launch)
    requests = [fast.request, slow.request, slow.request.model_copy(update={"threads": 4})]
    search = tuning_results.OpenSearch(
        started="2026-11-29T00:00:00.000Z",
        command="xfbench tune --framework torch --workload lenet --resume",
        first_launches=tuple(requests),
    )
    subject = "torch", "lenet", "cpu", "float32", machine_class(machine.describe_machine())
    tuning_results.write_open_search(results, subject, search)
    outcome = run_inline(*"tune --framework torch --workload lenet --show".split())
    assert outcome.returncode == 1
    assert outcome.stdout == (
        "lenet · torch: unfinished: 2 of 3 planned settings tried, none confirmed; continue with "
        "--resume\n  fastest so far: onednn · 2 threads\n"
        "  as a command, not confirmed: xfbench run --framework torch --workload lenet "
        "--batch-size 4 --kernel onednn --threads 2 --pinning none\n"
    )
    assert f"continue it: {search.command}\n" in outcome.stderr
    outcome = run_inline(*"tune --framework torch --workload lenet --show --json".split())
    document = json.loads(outcome.stdout)
    assert (document["settings"], document["untried"]) == (3, 1)
    assert document["best"]["threads"] == 2 and not document["confirmed"]


@pytest.mark.deep
def test_tune_finds_saves_and_reuses_the_best_setting(run_process, odd_framework, tmp_path):
    line = f"{TUNE} --launches 2 --no-verify --seed 1"  # with this seed `broken` is not first
    outcome = run_process(*line.split(), "--budget", "0.1")
    assert outcome.returncode == 1, outcome.stderr
    words = (
        "1 of 4 settings tried: no best is known; continue with --resume --budget 1m (1 min more)\n"
    )
    assert words in outcome.stdout and "ended by the budget" in outcome.stdout
    show = f"tune --framework odd --workload lenet --results {tmp_path}/results --show".split()
    shown = run_process(*show)
    assert shown.returncode == 1
    assert f"continue it: xfbench {line} --resume --budget 1m\n" in shown.stderr
    first = read_records(tmp_path / "results")
    assert len(first) == 1  # no launch time was known in advance
    tuned_run = f"run {SMALL} --tuned --no-verify --dry-run --json".split()
    assert "not tuned: lenet · odd · batch 4: no tuning of odd" in run_process(*tuned_run).stderr

    resumed = run_process(*line.split(), "--resume", "--budget", "5m", "--json")
    shown = run_process(*show)
    assert shown.returncode == 0 and "newer search" not in shown.stderr
    assert resumed.returncode == 0, resumed.stderr
    tuning = json.loads(resumed.stdout)
    assert (tuning["best"]["kernel"], tuning["best"]["threads"]) == ("quick", CORES)
    assert tuning["best"]["steps"] == 4 and tuning["confirmed"] and not tuning["verified"]
    assert tuning["over_default"]["value"] == pytest.approx(2, rel=1e-3)
    assert tuning["default"]["kernel"] == tuning["runner_up"]["kernel"] == "plain"
    dropped = {setting["setting"]["kernel"]: setting for setting in tuning["dropped"]}
    assert {*dropped} == {"broken", "slow"} and tuning["settings"] == 4
    assert dropped["broken"]["reason"] == "failed: KeyError: 'broken'"
    assert dropped["slow"]["reason"] == "slower"
    assert dropped["slow"]["relative"] == pytest.approx(0.25, rel=1e-3)

    # Every launch is a record; launches of the search have fewer steps.
    records_by_id = read_records(tmp_path / "results")
    successful_ids = {
        record_id for record_id in records_by_id if records_by_id[record_id]["status"] == "ok"
    }
    assert successful_ids <= {*tuning["records"]} <= {*records_by_id}
    requests = [record["request"] for record in records_by_id.values() if record["status"] == "ok"]
    assert len({(request["kernel"], request["launch"]) for request in requests}) == 7
    observations = {
        record_id: records_by_id[record_id]["observed"] or {} for record_id in tuning["records"]
    }
    latencies = {
        record_id: observed.get("handover_seconds", ())
        for record_id, observed in observations.items()
    }
    assert all(
        CORES == 1 or len(latencies[record_id]) >= 2
        for record_id in successful_ids & {*observations}
    )
    assert {request["launch"] for request in requests if request["steps"] == 1} == {1}
    assert {request["launch"] for request in requests if request["steps"] == 4} == {2, 3}
    launch_seconds = [
        records_by_id[record_id]["conditions"]["seconds"] for record_id in tuning["records"]
    ]
    assert tuning["machine_seconds"] == pytest.approx(sum(launch_seconds))
    assert 0 < tuning["search_seconds"] < tuning["machine_seconds"]
    file = tmp_path / "results" / "tuned" / f"{tuning['id'][7:]}.json"
    assert tuning["file"] == str(file) and file.is_file()

    run = run_process(*tuned_run)
    assert {request["kernel"] for request in json.loads(run.stdout)["requests"]} == {"quick"}
    assert "tuned: lenet · odd · batch 4: quick · " in run.stderr
    run = run_process(*tuned_run, "--batch-size", "8", "--kernel", "slow")
    assert {request["kernel"] for request in json.loads(run.stdout)["requests"]} == {"slow"}
    assert "xfbench tune --framework odd --workload lenet --batch-size 8\n" in run.stderr


@pytest.mark.deep
def test_tune_tries_only_verified_settings(run_process, odd_framework, tmp_path):
    outcome = run_process(*f"{TUNE} --launches 1 --over kernel=plain".split())
    assert outcome.returncode == 1 and outcome.stdout == ""
    last = outcome.stderr.strip().splitlines()[-1]
    assert last.startswith("xfbench: no setting can be tried: not verified: see `xfbench verify")
    assert not read_records(tmp_path / "results")


@pytest.mark.deep
def test_single_setting_is_certified_without_a_search(run_process, tmp_path):
    line = "tune --framework reference --workload lenet --batch-size 4 --steps 2 --warmup 0"
    line += f" {OVER} --launches 1 --results results"
    outcome = run_process(*line.split())
    assert outcome.returncode == 0, outcome.stderr
    assert "lenet · reference · batch 4: numpy · " in outcome.stdout
    tuned_records = read_records(
        tmp_path / "results"
    ).values()  # several after a high core-to-core latency
    assert {record["request"]["launch"] for record in tuned_records} == {1}
    assert (
        "the best setting is the default" in outcome.stdout
        and f"launches: {len(tuned_records)}, " in outcome.stdout
    )
    assert all(record["certificate"] for record in tuned_records)
    last = outcome.stdout.splitlines()[-1].partition(": xfbench ")[2]
    assert last == "tune --framework reference --workload lenet --results results --show"
    assert run_process(*last.split()).returncode == 0


def test_dry_run_lists_rungs_and_launch_limits(run_process, odd_framework, tmp_path):
    before = {*tmp_path.iterdir()}
    outcome = run_process(*TUNE.split(), "--dry-run")
    assert outcome.returncode == 0, outcome.stderr
    first, *lines = outcome.stdout.splitlines()
    assert first == "4 settings, at most 80 launches"
    assert lines[0] == "time: at least 14 launches; verification comes on top, with --budget too"
    assert lines[1].startswith("budget: what all settings need is unknown: no earlier")
    assert "rung 1: 4 settings, launches per setting: 1, steps: 1" in lines
    assert (
        "more rungs if launches differ too much to decide: at most 4, "
        "with at most 4 settings, launches per setting: 1 "
    ) in " ".join(outcome.stdout.split())
    assert "confirmation: launches per setting: 5 to 20, steps: 4" in lines
    assert (
        "repeats: at most 5 of each launch of a rung that has a high core-to-core latency" in lines
    )
    assert any(line.startswith("quick · ") for line in lines)
    document = json.loads(run_process(*TUNE.split(), "--dry-run", "--json").stdout)
    assert document["further_rungs_at_most"] == 4
    assert document["launches_at_most"] == 80 and len(document["settings"]) == 4
    assert {*tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("0s", "--budget 0s: '0s' must be more than zero"),
        ("0", "--budget 0: '0' must be more than zero"),
        ("0.0h", "--budget 0.0h: '0.0h' must be more than zero"),
        ("-5m", "--budget -5m: '-5m' is not a duration"),
        ("soon", "--budget soon: 'soon' is not a duration"),
        (f"{'9' * 400}s", "is not a duration"),
    ],
)
def test_a_budget_that_is_no_duration_is_refused(run_inline, budget, words):
    outcome = run_inline(*TUNE.split(), f"--budget={budget}", "--dry-run")
    assert outcome.returncode == 2 and words in outcome.stderr, outcome.stderr


def test_dry_run_warns_of_a_budget_below_the_first_rung(run_process, odd_framework):
    over = f"{SMALL} {OVER} --dry-run"
    outcome = run_process("tune", *over.split(), "--budget", "20s")
    assert outcome.returncode == 0, outcome.stderr
    # 4 launches: a start takes about 5 s, the warm-up 1 s, and a quarter of the steps 1.25 s.
    assert outcome.stderr.strip().splitlines()[-1] == (
        "warning: --budget 20s is too short to try every setting: the 4 launches of the first rung "
        "take about 29 s"
    )
    assert "too short" not in run_process("tune", *over.split(), "--budget", "30s").stderr
    # The 10 launches of the confirmation take 11 s each.
    assert "budget: all settings need at least 3 min. A smaller" in outcome.stdout
    document = json.loads(run_process("tune", *over.split(), "--json").stdout)
    assert document["needed_seconds"] == pytest.approx(29 + 10 * 11)


def test_several_batch_sizes_give_a_warning(run_process, odd_framework):
    line = TUNE.replace("--batch-size 4", "--batch-size 4,8")
    outcome = run_process(*line.split(), "--dry-run")
    assert "another one is different training" in outcome.stderr
    assert "quick · " in outcome.stdout and " · batch 8" in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("tune --framework torch", "--workload"),
        ("tune --framework torhc --workload lenet", "did you mean torch"),
        ("tune --framework torch --workload lenet --over threads", "NAME=VALUE,..."),
        ("tune --framework torch --workload lenet --over threads=1 --over threads=2", "once"),
        ("tune --framework torch --workload lenet --over treads=1", "did you mean threads"),
        ("tune --framework mxnet --workload lenet --precision bfloat16", "no precision bfloat16"),
        ("run --tuned --bundle away", "--bundle is for another"),
    ],
)
def test_invalid_arguments_give_one_line_and_exit_2(run_process, arguments, words):
    outcome = run_process(*arguments.split())
    assert outcome.returncode == 2 and outcome.stdout == ""
    assert len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr
    assert words in outcome.stderr
