"""Tests of checkpoints on the command line: the record, the table and the cleanup."""

import json

import pytest

RUN = "run --framework reference --workload lenet --batch-size 4 --steps 4 --launches 1".split()


def test_a_run_reports_its_checkpoints_and_leaves_none(run_process, run_inline, tmp_path):
    checkpoint_folder = tmp_path / "below"
    checkpoint_folder.mkdir()
    options = ["--checkpoints", "2", "--checkpoint-dir", "below", "--no-verify"]
    outcome = run_process(*RUN, *options, "--json")
    assert outcome.returncode == 0, outcome.stderr
    [record] = json.loads(outcome.stdout)["records"]
    checkpoints = record["checkpoints"]
    assert checkpoints["equal"] and len(checkpoints["save_seconds"]) == 2
    assert checkpoints["bytes"] > 8 * 431_080
    assert record["request"]["checkpoints"] == 2
    assert not list(checkpoint_folder.iterdir())
    table = run_inline("leaderboard", "--view", "storage", "--wide").stdout
    for word in ("NumPy's .npz", "3.45 MB", "MB/s", "of the run"):
        assert word in table


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--checkpoints 5", "more than the 4 timed windows"),
        ("--checkpoint-dir .", "--checkpoints"),
        ("--checkpoints 2 --checkpoint-dir nowhere", "no such folder"),
    ],
)
def test_invalid_checkpoint_options_give_one_line(run_inline, arguments, words):
    outcome = run_inline(*RUN, *arguments.split())
    assert outcome.returncode == 2
    assert len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr
    assert words in outcome.stderr
