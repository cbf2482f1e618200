"""`xfbench data` end to end, and training on what it makes."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import mounted
from xfbench.data.encoding import png


@pytest.fixture
def tmpfs(tmp_path):
    """A folder in memory."""
    mounted.insist()
    with mounted.mounted(tmp_path / "memory", "-t", "tmpfs", "-o", "size=20m", "tmpfs") as folder:
        yield folder


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    """An empty folder of data sets."""
    monkeypatch.setenv("XFBENCH_DATA", str(tmp_path / "data"))


def test_a_set_is_prepared_converted_listed_and_checked(here, tmp_path):
    shown = here("data", "prepare", "digits", "--json")
    assert shown.returncode == 0, shown.stderr
    made = json.loads(shown.stdout)
    assert made["splits"]["train"]["samples"] == 1437 and made["shape"] == [1, 28, 28]
    assert "train: 1437 of 1437" in shown.stderr
    there = tmp_path / "data" / "digits-raw"
    assert here("data", "convert", str(there), "copy", "--format", "folder").returncode == 0
    here("data", "convert", str(there), "data/mine", "--as", "figures", "--format", "tfrecord")
    listed = json.loads(here("data", "list", "--json").stdout)["data"]
    names = [("digits", "raw"), ("figures", "tfrecord")]
    assert [(one["name"], one["format"]) for one in listed] == names
    checked = here("data", "check", str(there), "copy", "--json")
    assert checked.returncode == 0 and json.loads(checked.stdout)["equal"] is True
    (tmp_path / "copy" / "test" / "7").rename(tmp_path / "copy" / "test" / "seven")
    broken = here("data", "check", str(there), "copy")
    assert broken.returncode == 2 and "is missing" in broken.stderr


def test_sets_in_another_order_differ_with_exit_status_1(here, tmp_path):
    here("data", "prepare", "digits")
    here("data", "convert", "data/digits-raw", "digits", "--format", "folder")
    here("data", "convert", "folder:digits", "mixed", "--format", "folder")
    shown = here("data", "check", "digits", "mixed")
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
        ("prepare digits --as a/b", "--as 'a/b'"),
        ("prepare digits --classes 3", "--classes is for imagenet"),
        ("convert nowhere there", "manifest.json is missing"),
        ("check nowhere", "manifest.json is missing"),
    ],
)
def test_a_wrong_data_command_is_one_line(here, line, told):
    shown = here("data", *line.split())
    assert shown.returncode == 2, shown.stdout
    assert told in shown.stderr and len(shown.stderr.splitlines()) <= 2


@pytest.mark.deep
def test_training_is_the_same_from_every_format(here, xfbench, tmp_path):
    here("data", "prepare", "digits")
    here("data", "convert", "data/digits-raw", "data/digits-folder", "--format", "folder")
    shown = xfbench(
        *"run --framework reference --workload lenet --data digits-raw,digits-folder".split(),
        *"--batch-size 32 --epochs 1 --launches 1 --no-verify --json".split(),
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
    board = json.loads(here("leaderboard", "--json").stdout)
    [table] = board["tables"]
    assert table["data"].startswith("digits ")
    rows = [*table["rows"], *table["unranked"]]
    assert {row["data_format"] for row in rows} == {"raw", "folder"}
    assert "format" in here("leaderboard").stdout


def test_a_set_of_another_shape_is_unsupported(here, xfbench):
    here("data", "prepare", "digits")
    shown = xfbench(
        *"run --framework reference --workload lenet,convnet --data digits-raw --steps 1".split(),
        *"--batch-size 2 --launches 1 --no-verify --json".split(),
    )
    records = {r["request"]["workload"]: r for r in json.loads(shown.stdout)["records"]}
    assert records["lenet"]["status"] == "ok"
    assert records["convnet"]["status"] == "unsupported"
    assert "1 channels, convnet reads 3" in records["convnet"]["reason"]
    unknown = here("run", "--data", "digitz")
    assert unknown.returncode == 2 and "did you mean digits" in unknown.stderr


def test_an_impossible_input_is_one_line(here):
    here("data", "prepare", "digits")
    for line, told in (
        ("--data digits --input native", "for prepared data sets"),
        ("--data digits-raw --input native --input-threads 0", "one or more input threads"),
        ("--data digits-raw --input native --ranks 2 --scaling weak", "native is for one rank"),
        ("--data digits-raw --input theirs", "'ours' or 'native'"),
    ):
        shown = here(*f"run --framework reference --workload lenet {line}".split())
        assert shown.returncode == 2 and told in shown.stderr, shown.stderr
        assert len(shown.stderr.splitlines()) <= 2


# So large that what else a process reads meanwhile, a library's pages, is little beside it.
LARGE = ("data", "prepare", "digits", "--size", "96")


@pytest.mark.alone
def test_a_cold_epoch_is_read_from_the_device_or_has_a_reason(here, xfbench):
    here(*LARGE)
    line = "run --framework torch --workload lenet --data digits-raw --epochs 2 --json"
    line += " --launches 1 --no-verify --page-cache cold,warm"
    shown = xfbench(*line.split())
    records = {r["request"]["page_cache"]: r for r in json.loads(shown.stdout)["records"]}
    for mode, record in records.items():
        assert record["status"] == "ok", record["reason"]
        assert record["storage"]["medium"]["total_bytes"] > 0
        patterns = [(one["pattern"], one["block_bytes"]) for one in record["storage"]["reads"]]
        assert patterns[0] == ("sequential", 2**20) and len(patterns) == 3
        first, second = record["storage"]["epochs"]
        for epoch in (first, second):
            assert epoch["page_cache"] == mode
            assert epoch["bytes"] == -(-1437 * 96 * 96 // 4096) * 4096
            assert epoch["share"] == 22 * 64 / 1437
            if epoch["held"] is None:
                assert epoch["reason"]
            else:
                assert epoch["held"] is True
    refused = here(*"run --workload lenet --page-cache cold --steps 2".split())
    assert refused.returncode == 2 and "prepared data set" in refused.stderr


@pytest.mark.alone
@pytest.mark.deep
def test_a_cold_epoch_reads_all_its_bytes_from_the_disk(here, xfbench, tmp_path):
    here(*LARGE)
    with mounted.ext4(tmp_path) as disk:
        here("data", "convert", "data/digits-raw", str(disk / "digits"), "--format", "lmdb")
        line = "run --framework torch --workload lenet --epochs 2 --launches 1 --no-verify"
        shown = xfbench(
            *line.split(), "--data", str(disk / "digits"), "--page-cache", "cold", "--json"
        )
    [record] = json.loads(shown.stdout)["records"]
    for epoch in record["storage"]["epochs"]:
        assert epoch["resident_before"] == 0
        assert epoch["device_bytes"] > 0.96 * epoch["bytes"]
        assert epoch["held"] is True or "a library's" in epoch["reason"]


@pytest.mark.alone
@pytest.mark.deep
def test_ranks_of_a_node_empty_the_page_cache_together(here, xfbench, tmp_path):
    here(*LARGE)
    line = "run --framework torch --workload lenet --epochs 2 --launches 1 --no-verify --json"
    line += " --ranks 2 --scaling strong --threads 1 --page-cache cold"
    with mounted.ext4(tmp_path) as disk:
        here("data", "convert", "data/digits-raw", str(disk / "digits"), "--format", "raw")
        shown = xfbench(*line.split(), "--data", str(disk / "digits"))
    [record] = json.loads(shown.stdout)["records"]
    assert record["status"] == "ok", record["reason"]
    epochs = record["storage"]["epochs"]
    for parts in (epochs[0::2], epochs[1::2]):  # the first rank's, then the second's
        assert sum(part["device_bytes"] for part in parts) > 0.96 * parts[0]["bytes"]
        assert all(part["resident_before"] == 0 for part in parts)
        assert len({part["held"] for part in parts}) == 1
        assert parts[0]["held"] is True or "a library's" in parts[0]["reason"]


def test_two_media_and_formats_are_two_cells_with_the_same_losses(here, xfbench, tmpfs, tmp_path):
    here("data", "prepare", "digits")
    here("data", "convert", "data/digits-raw", str(tmpfs / "digits"), "--format", "folder")
    line = "run --framework reference --workload lenet --steps 2 --batch-size 4 --launches 1"
    shown = xfbench(*line.split(), "--no-verify", "--data", f"digits-raw,{tmpfs}/digits")
    assert shown.returncode == 0, shown.stderr
    [table] = json.loads(here("leaderboard", "--json").stdout)["tables"]
    media = {row["medium"] for row in table["unranked"]}
    assert len(media) == 2 and "tmpfs on memory" in media
    assert {row["data_format"] for row in table["unranked"]} == {"raw", "folder"}
    records = [json.loads(file.read_text()) for file in tmp_path.glob("results/records/*/*.json")]
    assert len({tuple(record["measurement"]["losses"]) for record in records}) == 1
    assert "tmpfs on memory" in shown.stdout
    storage = here("leaderboard", "--columns", "storage").stdout
    assert "input" in storage


def test_an_interrupted_set_does_not_get_its_final_name(tmp_path):
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    one = tmp_path / "one.png"
    one.write_bytes(png(np.zeros((1, 8, 8), np.uint8)))
    for number in range(10_000):  # for seconds, of which the first is enough
        (tmp_path / "pictures" / "a" / f"{number}.png").hardlink_to(one)
    line = ["data", "prepare", "folder", "--from", "pictures", "--to", "made"]
    line += ["--format", "folder"]
    # Where tests run in the background, children are told to hear no interrupt.
    heard = ("env", "--default-signal=INT", sys.executable, "-m", "xfbench")
    with subprocess.Popen(
        [*heard, *line], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as running:
        for _ in range(6000):
            listed = tmp_path / "made.partial" / "train.samples"
            if listed.exists() and listed.stat().st_size:  # a library that loads may hear nothing
                break
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert told.splitlines()[-1] == "xfbench: interrupted; what was done is kept"
    assert not (tmp_path / "made").exists()
