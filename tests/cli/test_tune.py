"""`tune` and `run --tuned` as a person uses them: found, kept, used, gone on with."""

import json

import pytest

# A framework that sleeps: on two threads and with the kernel `quick` for the shortest time.
TRAINER = """
import time
import numpy as np

class Trainer:
    def __init__(self, options):
        self.kernel = options.kernel
        self.seconds = {"plain": 0.1, "quick": 0.05}[options.kernel] / min(2, options.threads)
    def load(self, images, labels): return images
    def step(self, batch): time.sleep(self.seconds)
    def wait(self): return 1.0
    def loss(self, batch): return EXPECTED_LOSS
    def scores(self, batch): return np.zeros((len(batch), 10), np.float32)
    def gradients(self, batch): return {}
    def parameters(self): return {}
    def assign(self, parameters): pass
    def observed(self):
        known = {"framework_version": "1", "layout": "NCHW", "kernel": self.kernel}
        return {**known, "kernel_evidence": []}

def build(network, solver, options, group):
    return Trainer(options)
"""
SMALL = "--framework odd --workload lenet --batch-size 4 --data synthetic"
TUNE = f"tune {SMALL} --steps 4 --warmup 0 --over affinity=none --over threads=1,2"


@pytest.fixture
def odd(own_adapter, tmp_path):
    """The framework: `broken` is a kernel that cannot be built with."""
    own_adapter("odd", TRAINER)
    described = tmp_path / "adapters" / "odd" / "adapter.toml"
    more = "".join(f'[kernels.{one}]\ntitle = "{one}"\n' for one in ("quick", "broken"))
    described.write_text(described.read_text() + more)


def records(folder):
    """All that lie there, by their id."""
    found = [json.loads(file.read_text()) for file in folder.glob("records/*/*.json")]
    return {one["id"]: one for one in found}


def test_the_best_setting_is_found_kept_used_and_not_sought_again(xfbench, odd, tmp_path):
    line = f"{TUNE} --launches 2 --no-verify --json"
    shown = xfbench(*line.split())
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert (found["best"]["kernel"], found["best"]["threads"]) == ("quick", 2)
    assert found["best"]["steps"] == 4 and found["confirmed"] and not found["verified"]
    assert found["over_default"]["value"] == pytest.approx(2, rel=0.3)
    assert found["default"]["kernel"] == "plain" and found["settings"] == 6
    lost = {(one["setting"]["kernel"], one["setting"]["threads"]): one for one in found["dropped"]}
    assert {*lost} >= {("broken", 1), ("broken", 2), ("plain", 1)}
    assert lost["broken", 1]["reason"] == "failed: KeyError: 'broken'"
    assert lost["plain", 1]["reason"] == "slower"
    assert lost["plain", 1]["relative"] == pytest.approx(0.25, rel=0.3)

    # Every launch is a record; those of the search are shorter, and no number comes twice.
    kept = records(tmp_path / "results")
    assert {*kept} == {*found["records"]} and len(kept) == found["launches"]
    asked = [one["request"] for one in kept.values()]
    assert {one["steps"] for one in asked} == {1, 4}
    assert {one["launch"] for one in asked if one["steps"] == 4} == {2, 3}
    took = [one["conditions"]["seconds"] for one in kept.values()]
    assert found["machine_seconds"] == pytest.approx(sum(took))
    assert 0 < found["search_seconds"] < found["machine_seconds"]
    [file] = (tmp_path / "results" / "tuned").iterdir()
    assert file.stem == found["id"][7:] and str(file) == found["file"]

    again = xfbench(*line.split(), "--resume")
    assert json.loads(again.stdout)["best"] == found["best"], again.stderr
    more = {*records(tmp_path / "results")} - {*kept}
    assert {records(tmp_path / "results")[one]["request"]["kernel"] for one in more} == {"broken"}

    def planned(*options):
        run = xfbench(*f"run {SMALL} --tuned --no-verify --dry-run --json".split(), *options)
        assert run.returncode == 0, run.stderr
        cells = {(one["kernel"], one["threads"]) for one in json.loads(run.stdout)["requests"]}
        return cells, run.stderr

    cells, said = planned()
    assert cells == {("quick", 2)}
    assert "tuned: lenet · odd · batch 4: quick · 2 threads, " in said
    assert planned("--threads", "1")[0] == {("quick", 1)}
    assert planned("--kernel", "plain", "--threads", "1")[0] == {("plain", 1)}
    cells, said = planned("--batch-size", "8")
    assert "xfbench tune --framework odd --workload lenet --batch-size 8\n" in said
    assert not cells & {("quick", 2)}


def test_a_budget_ends_the_search_and_what_is_left_of_it_can_be_done_later(xfbench, odd, tmp_path):
    line = f"{TUNE} --over kernel=plain,quick --launches 1 --no-verify"
    short = xfbench(*line.split(), "--budget", "0.1")
    assert short.returncode == 1, short.stderr
    assert "not confirmed: go on with --resume" in short.stdout
    assert "ended by the budget" in short.stdout
    took = sum(one["conditions"]["seconds"] for one in records(tmp_path / "results").values())
    assert len(records(tmp_path / "results")) == 1 and took > 0  # nothing was known before it
    run = xfbench(*f"run {SMALL} --tuned --no-verify --dry-run".split())
    assert "not tuned: " in run.stderr
    rest = xfbench(*line.split(), "--resume", "--minutes", "5")
    assert rest.returncode == 0, rest.stderr
    assert "quick · 2 threads" in rest.stdout
    asked = [
        (one["request"]["kernel"], one["request"]["threads"], one["request"]["launch"])
        for one in records(tmp_path / "results").values()
    ]
    assert len(asked) == len({*asked}), "a launch was done twice"


def test_only_what_is_proven_equal_is_tried(xfbench, odd, tmp_path):
    shown = xfbench(*f"{TUNE} --launches 1 --over kernel=plain".replace("=1,2", "=1").split())
    assert shown.returncode == 1 and shown.stdout == ""
    last = shown.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "xfbench: there is nothing to try: not proven equal: see `xfbench verify"
    )
    assert not records(tmp_path / "results")


def test_one_setting_is_compared_with_the_default_without_a_search(xfbench, tmp_path):
    """The reference's, with its certificate."""
    line = "tune --framework reference --workload lenet --batch-size 4 --steps 2 --warmup 0"
    shown = xfbench(*line.split(), *"--over affinity=none --over threads=1 --launches 2".split())
    assert shown.returncode == 0, shown.stderr
    assert "lenet · reference · batch 4: numpy · " in shown.stdout
    assert "settings: 1, launches: 4" in shown.stdout
    assert all(one["certificate"] for one in records(tmp_path / "results").values())


def test_a_dry_run_says_the_rungs_and_the_launches_at_most(xfbench, odd, tmp_path):
    before = {*tmp_path.iterdir()}
    shown = xfbench(*TUNE.split(), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    first, *lines = shown.stdout.splitlines()
    assert first == "6 settings, 66 launches at most"
    assert "rung 1: 6 settings, launches of each: 1, steps: 1" in lines
    assert "confirmation: launches of each: 5 to 20, steps: 4" in lines
    assert "quick · 2 threads" in lines
    document = json.loads(xfbench(*TUNE.split(), "--dry-run", "--json").stdout)
    assert document["launches_at_most"] == 66 and len(document["settings"]) == 6
    assert {*tmp_path.iterdir()} == before


def test_several_batches_are_said_to_be_different_training(xfbench, odd):
    line = TUNE.replace("--batch-size 4", "--batch-size 4,8")
    shown = xfbench(*line.split(), "--dry-run")
    assert "another batch is different training" in shown.stderr
    assert "quick · 2 threads · batch 8" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("tune --framework torch", "--workload"),
        ("tune --framework torhc --workload lenet", "did you mean torch"),
        ("tune --framework torch --workload lenet --over threads", "NAME=VALUE,..."),
        ("tune --framework torch --workload lenet --over threads=1 --over threads=2", "once"),
        ("tune --framework torch --workload lenet --over treads=1", "did you mean threads"),
        ("tune --framework torch --workload lenet --budget 9 --minutes 9", "only one of them"),
        ("tune --framework mxnet --workload lenet --precision bfloat16", "no precision bfloat16"),
        ("run --tuned --carry away", "--carry for another one"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(xfbench, arguments, words):
    shown = xfbench(*arguments.split())
    assert shown.returncode == 2 and shown.stdout == ""
    assert len(shown.stderr.strip().splitlines()) == 1, shown.stderr
    assert words in shown.stderr
