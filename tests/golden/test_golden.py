"""Golden files are what today's code gives: see the docstring of the package."""

import difflib

import pytest

from tests import golden
from tests.golden import archives, planted_bugs
from xfbench.equality import plants

MAX_DIFFERENCE_LINES = 40  # of a difference that a failing test shows
FAILURE_MESSAGE = """{file} differs from what the code gives now.
If what is shown was changed on purpose, describe it in CHANGELOG.md and write the file again:
    .venv/bin/python -m tests.golden {name}
Digests of workloads and cells, and keys of certificates, never change."""

# Networks whose planted bugs take hours; `python -m tests.golden self_test` adds their outcomes.
LARGE = {"alexnet", "caffenet", "googlenet", "resnet50"}


def check(name):
    """Compare a golden file with what the code gives; show a short difference."""
    file = golden.path(name)
    recorded = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    current = golden.build(name).splitlines()
    if recorded != current:
        lines = [*difflib.unified_diff(recorded, current, "golden", "now", n=1, lineterm="")]
        if len(lines) > MAX_DIFFERENCE_LINES:
            lines = [
                *lines[:MAX_DIFFERENCE_LINES],
                f"… {len(lines) - MAX_DIFFERENCE_LINES} more lines",
            ]
        message = FAILURE_MESSAGE.format(file=file.relative_to(golden.FOLDER.parents[1]), name=name)
        pytest.fail("\n".join([message, *lines]), pytrace=False)


def parametrize_subject(subject):
    """Parametrise a test by the files of a subject."""
    names = [name for name in golden.SUBJECTS if name.startswith(f"{subject}/")]
    return pytest.mark.parametrize("name", names, ids=lambda name: name.partition("/")[2])


@parametrize_subject("workloads")
def test_workload_and_initial_weights_keep_digests(name):
    check(name)


@parametrize_subject("keys")
def test_old_records_keep_cells_and_certificate_keys(name):
    check(name)


@pytest.mark.parametrize("archive", archives.names())
def test_cells_that_records_name_are_those_recomputed(archive):
    recomputed = archives.keys(archive)["records"]
    stored_cells = archives.stored_cells(archive)
    assert {record: keys.split()[0] for record, keys in recomputed.items()} == {
        record: str(cell) for record, cell in stored_cells.items()
    }


@parametrize_subject("leaderboard")
def test_leaderboard_keeps_its_figures(name):
    check(name)


@parametrize_subject("compare")
def test_compare_keeps_its_figures_and_verdicts(name):
    check(name)


@parametrize_subject("list")
def test_results_list_keeps_every_field(name):
    check(name)


@parametrize_subject("validate")
def test_results_validate_keeps_its_findings(name):
    check(name)


def test_record_schema_is_unchanged():
    check("record_schema")


def test_schemas_of_other_documents_are_unchanged():
    check("schemas")


def test_commands_and_options_are_unchanged():
    check("commands")


def test_values_of_options_are_unchanged():
    check("values")


def test_toml_keys_are_unchanged():
    check("toml_keys")


def test_environment_variables_are_unchanged():
    check("variables")


def test_exit_codes_are_unchanged():
    check("exit_codes")


def test_python_interface_is_unchanged():
    check("python")


def test_every_golden_file_has_a_subject():
    files = {
        file.relative_to(golden.FOLDER).with_suffix("").as_posix()
        for file in golden.FOLDER.rglob("*.json")
    }
    assert files == {*golden.SUBJECTS, golden.SELF_TEST}


def test_no_planted_bug_of_the_self_test_is_lost():
    existing = {bug.name: (bug.framework, bug.workload) for bug in plants.load_planted_bugs()}
    recorded = {
        name: (outcome["framework"], outcome["workload"])
        for name, outcome in planted_bugs.outcomes().items()
    }
    assert recorded.items() <= existing.items()
    missing = {name for name in existing if name not in recorded}
    assert {existing[name][1] for name in missing} <= LARGE, (
        f"{missing} have no recorded outcome: .venv/bin/python -m tests.golden self_test"
    )


def test_every_recorded_planted_bug_was_caught_at_its_layer():
    layers = {bug.name: bug.layer for bug in plants.load_planted_bugs()}
    for name, outcome in planted_bugs.outcomes().items():
        assert outcome["caught"] is True, name
        assert outcome["first_layer"] == layers[name], name


@pytest.mark.long
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("name", planted_bugs.outcomes())
def test_self_test_catches_a_planted_bug_where_it_did(name):
    assert planted_bugs.outcome(name) == planted_bugs.outcomes()[name]
