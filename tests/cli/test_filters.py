"""Filters that match nothing, or in part, and names that nobody knows: each is said."""

import pytest

from xfbench.model.record import Software
from xfbench.store.results_folder import Store


@pytest.fixture
def results(tmp_path, record):
    """A results folder with two frameworks. The index lacks the versions of their packages."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for framework, version in (("torch", "1.26.4"), ("caffe", "2.1.0")):
        digests = dict.fromkeys(("worker_digest", "adapter_digest", "environment_digest"), "0")
        software = Software(
            xfbench_version="1",
            git_commit=None,
            git_dirty=None,
            packages={"numpy": version},
            **digests,
        )
        store.add(record(framework=framework, fields={"software": software}))
    return store


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (
            "software.packages.numpy=1.26.3",
            "match software.packages.numpy=1.26.3: software.packages.numpy is one of 1.26.4, 2.1.0",
        ),
        ("software.packages.torch=2", "none has a software.packages.torch"),
        ("measurement.step_seconds>1", "measurement.step_seconds is one of 0.1"),
        (
            "framework=torch,software.packages.numpy=2.1.0",
            "with request.framework=torch, software.packages.numpy is one of 1.26.4",
        ),
    ],
)
@pytest.mark.parametrize(
    "command", ["results list", "leaderboard", "report", "compare --self", "results export a.csv"]
)
def test_values_of_fields_that_the_index_lacks_are_named(
    run_inline, results, command, condition, words
):
    outcome = run_inline(*command.split(), "--where", condition)
    assert outcome.returncode == 1 and not outcome.stdout
    assert words in outcome.stderr


COMMANDS_WITH_FILTERS = [
    "results list",
    "results repeat",
    "results export a.csv",
    "results references",
    "results submit away",
    "leaderboard",
    "report",
    "compare threads=1 threads=2",
    "compare --self",
    "predict",
    "study report thread-sweep",
]


@pytest.mark.parametrize("command", COMMANDS_WITH_FILTERS)
def test_unknown_name_in_a_list_is_refused(run_inline, results, command):
    outcome = run_inline(*command.split(), "--framework", "torch,tocrh")
    assert outcome.returncode == 1 and not outcome.stdout
    assert "match request.framework=tocrh: framework is one of torch, caffe" in outcome.stderr


@pytest.mark.parametrize("command", ["results list", "leaderboard", "report"])
@pytest.mark.parametrize("names", [("--framework", "torch,mxnet"), ("--workload", "lenet,alexnet")])
def test_known_name_without_a_record_is_said(run_inline, results, command, names):
    outcome = run_inline(*command.split(), *names)
    assert outcome.returncode == 0 and outcome.stdout
    kind, absent = names[0].removeprefix("--"), names[1].partition(",")[2]
    assert f"0 of 2 records match request.{kind}={absent}: {kind} is one of" in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--framework tocrh", "unknown framework 'tocrh': did you mean torch?"),
        ("--framework torch,tocrh", "unknown framework 'tocrh': did you mean torch?"),
        ("--workload lenett", "unknown workload 'lenett': did you mean lenet?"),
        ("--framework torch,reference", "does not use reference: choose from"),
        ("--partition gpu", "--partition has no effect here: it needs --launcher slurm"),
        ("--account a", "--account has no effect here: it needs --launcher slurm"),
        ("--job-time 5m", "--job-time has no effect here: it needs --launcher slurm"),
    ],
)
def test_study_refuses_names_that_it_does_not_use(run_inline, arguments, words):
    outcome = run_inline("study", "run", "thread-sweep", "--dry-run", *arguments.split())
    assert outcome.returncode == 2
    assert words in outcome.stderr
