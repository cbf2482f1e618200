"""`xfbench data` end to end, and training on what it makes."""

import json

import pytest


@pytest.fixture
def data(xfbench, tmp_path):
    """A function: the command, with a data folder of the test's own."""

    def run(*arguments):
        return xfbench(*arguments, XFBENCH_DATA=str(tmp_path / "data"))

    return run


def test_prepared_converted_listed_and_checked(data, tmp_path):
    shown = data("data", "prepare", "digits", "--json")
    assert shown.returncode == 0, shown.stderr
    made = json.loads(shown.stdout)
    assert made["splits"]["train"]["samples"] == 1437 and made["shape"] == [1, 28, 28]
    assert "train: 1437 of 1437" in shown.stderr
    there = tmp_path / "data" / "digits-raw"
    assert data("data", "convert", str(there), "copy", "--format", "folder").returncode == 0
    listed = json.loads(data("data", "list", "--json").stdout)["data"]
    assert [(one["name"], one["format"]) for one in listed] == [("digits", "raw")]
    checked = data("data", "check", str(there), "copy", "--json")
    assert checked.returncode == 0 and json.loads(checked.stdout)["equal"] is True
    (tmp_path / "copy" / "test" / "7").rename(tmp_path / "copy" / "test" / "seven")
    broken = data("data", "check", str(there), "copy")
    assert broken.returncode == 2 and "is missing" in broken.stderr


def test_another_order_is_different_and_the_exit_status_says_so(data, tmp_path):
    data("data", "prepare", "digits")
    data("data", "convert", "folder:data/digits-raw", "nothing")
    data("data", "convert", "data/digits-raw", "digits", "--format", "folder")
    data("data", "convert", "folder:digits", "mixed", "--format", "folder")
    shown = data("data", "check", "digits", "mixed")
    assert shown.returncode == 1 and shown.stdout.splitlines()[-1] == "different"


@pytest.mark.parametrize(
    "line, told",
    [
        ("prepare mnist", "--from"),
        ("prepare mnsit --from .", "did you mean mnist?"),
        ("prepare mnist --from .", "MNIST is four IDX files"),
        ("prepare folder --from . --size 0", "--size 0"),
        ("prepare folder --from nowhere", "nowhere is no folder"),
        ("prepare digits --format tfrecords", "did you mean tfrecord?"),
        ("prepare digits --encode jpg", "--encode jpg"),
        ("prepare digits --classes 3", "--classes is for imagenet"),
        ("convert nowhere there", "manifest.json is missing"),
        ("check nowhere", "manifest.json is missing"),
    ],
)
def test_a_slip_costs_a_line(data, line, told):
    shown = data("data", *line.split())
    assert shown.returncode == 2, shown.stdout
    assert told in shown.stderr and len(shown.stderr.splitlines()) <= 2


def test_training_on_a_prepared_set_is_the_same_from_every_format(data, tmp_path):
    data("data", "prepare", "digits")
    data("data", "convert", "data/digits-raw", "data/digits-folder", "--format", "folder")
    shown = data(
        *"run --framework reference --workload lenet --data digits-raw,digits-folder".split(),
        *"--batch-size 32 --epochs 1 --launches 1 --json".split(),
    )
    assert shown.returncode == 0, shown.stderr
    first, second = json.loads(shown.stdout)["records"]
    for record in (first, second):
        assert record["request"]["data"] == "digits"
        assert record["canary"]["relative_error"] < 1e-5
        assert record["learning"][0]["test_accuracy"] > 0.2
        assert str(tmp_path) not in json.dumps(record["request"])
    assert first["measurement"]["losses"] == second["measurement"]["losses"]
    assert first["cell"] != second["cell"]
    board = json.loads(data("leaderboard", "--json").stdout)
    [table] = board["tables"]
    assert table["data"].startswith("digits ")
    rows = [*table["rows"], *table["unranked"]]
    assert {row["data_format"] for row in rows} == {"raw", "folder"}
    assert "format" in data("leaderboard").stdout


def test_a_set_that_does_not_fit_the_network_is_unsupported_and_says_why(data):
    data("data", "prepare", "digits")
    shown = data(
        *"run --framework reference --workload lenet,convnet --data digits-raw --steps 1".split(),
        *"--batch-size 2 --launches 1 --no-verify --json".split(),
    )
    records = {r["request"]["workload"]: r for r in json.loads(shown.stdout)["records"]}
    assert records["lenet"]["status"] == "ok"
    assert records["convnet"]["status"] == "unsupported"
    assert "1 channels, convnet reads 3" in records["convnet"]["reason"]
    unknown = data("run", "--data", "digitz")
    assert unknown.returncode == 2 and "did you mean digits" in unknown.stderr
