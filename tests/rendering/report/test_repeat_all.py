"""Tests of the commands that repeat several rows."""

import json

import pytest

from tests.sample_records import vary_record
from xfbench.model.request import Protocol, Request
from xfbench.rendering.report import repeat_all
from xfbench.store.results_folder import Store


@pytest.fixture
def plan_requests(run_inline):
    """A function that returns the requests of `xfbench run` with these arguments."""

    def dry_run(arguments):
        done = run_inline("run", *arguments.split(), "--dry-run", "--json")
        return [Request(**request) for request in json.loads(done.stdout)["requests"]]

    return dry_run


def repeat_requests(measured, requests, launches=1):
    """Return the commands that repeat records of the requests, each cell launched so often."""
    records = [
        vary_record(
            measured[0],
            request=dict(request),
            protocol=Protocol.fixed(launches),
            created=f"2026-01-01T00:00:00.{number:06}Z",
        )
        for number, request in enumerate(requests)
    ]
    return repeat_all.commands_that_repeat(records)


ALL = "--framework torch,tensorflow,mxnet --workload lenet,convnet --threads 1,2"
LENET = "--workload lenet --threads 1"
RANKS = f"--framework torch {LENET} --scaling weak --launcher mpi"


@pytest.mark.parametrize(
    ("runs", "command_count"),
    [
        ([ALL], 1),
        (["--framework torch --workload lenet --threads 1,2 --epochs 2"], 1),
        ([f"--framework torch --batch-size 32,64 {LENET}"], 1),
        # No framework has the kernel libraries of the other.
        ([f"--framework caffe,torch --kernel all {LENET}"], 1),
        ([f"--framework caffe,torch --precision float32,float64 --seed 0,1 {LENET}"], 1),
        ([f"{RANKS} --ranks 1,2,4 --nodes 1,2,4"], 1),
        ([f"{RANKS} --ranks 1,2 --ranks-per-node 1"], 1),
        ([f"{RANKS} --ranks 2,4,8 --ranks-per-node 2"], 1),
        ([f"{RANKS} --ranks 1,2 --strategy mpi,ddp --pinning cores"], 1),
        # One command would also measure MXNet with two threads.
        ([f"--framework torch,mxnet {LENET}", "--framework torch --workload lenet --threads 2"], 2),
        # No word stands for the published learning rate.
        ([f"--framework torch {LENET}", f"--framework torch {LENET} --learning-rate 0.5"], 2),
    ],
)
def test_the_commands_measure_the_same_cells(measured, plan_requests, runs, command_count):
    requests = [request for run in runs for request in plan_requests(f"{run} --launches 2")]
    commands = repeat_requests(measured, requests, launches=2)
    repeated = [
        request
        for line in commands.lines
        for request in plan_requests(line.removeprefix("xfbench run "))
    ]
    assert set(repeated) == set(requests) and len(repeated) == len(requests)
    assert len(commands.lines) == command_count
    assert not commands.notes


def test_a_full_product_is_one_command(measured, plan_requests):
    [line] = repeat_requests(measured, plan_requests(f"{ALL} --launches 1")).lines
    for option in (
        "--framework mxnet,tensorflow,torch ",
        "--workload convnet,lenet ",
        "--threads 1,2",
    ):
        assert option in line


def test_notes_name_what_records_do_not_have(measured):
    slurm = {"launcher": "slurm", "site": "mine.toml"}
    changes = [slurm, {**slurm, "environment": "python", "python": "old"}]
    records = [vary_record(measured[0], request=change) for change in changes]
    published = vary_record(measured[0], source="published")
    commands = repeat_all.commands_that_repeat([*records, published])
    [line] = commands.lines
    assert "--site ./mine.toml" in line and "--launcher slurm" in line
    python_note, slurm_note, site_note, missing_note = commands.notes
    assert "mine.toml" in site_note
    assert "--python FRAMEWORK=PATH" in python_note
    assert "--partition" in slurm_note and "--job-time" in slurm_note
    assert missing_note == "No command repeats 1 of 3 rows."


def test_the_command_prints_what_repeats_the_records(results_folder, run_inline):
    done = run_inline("results", "repeat", "--results", str(results_folder))
    assert done.returncode == 0 and done.stdout.startswith("xfbench run --framework ")
    chosen = ("--where", "batch-size=8", "--json")
    done = run_inline("results", "repeat", "--results", str(results_folder), *chosen)
    [line] = json.loads(done.stdout)["commands"]
    assert "--batch-size 8" in line


def test_what_else_a_repetition_needs_stands_in_the_comments_of_the_script(
    measured, tmp_path, run_inline
):
    store = Store(tmp_path / "results")
    store.add(vary_record(measured[0], request={"launcher": "slurm"}))
    commands = ("results", "repeat", "--results", str(store.folder))
    script = run_inline(*commands).stdout.splitlines()
    document = json.loads(run_inline(*commands, "--json").stdout)
    assert document["notes"] and script == [
        *(f"# {note}" for note in document["notes"]),
        *document["commands"],
    ]


def test_launches_that_took_turns_on_several_nodes_need_one_allocation(measured, plan_requests):
    requests = plan_requests(f"{RANKS} --ranks 1,2 --ranks-per-node 1")

    def notes(**changes):
        changed = [each.model_copy(update={"launcher": "slurm", **changes}) for each in requests]
        return [note for note in repeat_requests(measured, changed).notes if "salloc" in note]

    [note] = notes(session="a")
    assert "took turns in one allocation" in note and "salloc --nodes=2 " in note
    assert notes(session=None) == []
    assert notes(session="a", nodes=1) == []


def test_a_site_file_is_named(measured, plan_requests):
    requests = [
        each.model_copy(update={"site": "mine.toml"})
        for each in plan_requests(f"{RANKS} --ranks 1")
    ]
    assert any("reads mine.toml" in note for note in repeat_requests(measured, requests).notes)
