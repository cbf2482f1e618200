"""Tests of `xfbench data` from end to end, and of training on prepared data sets."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import temporary_mounts
from xfbench.datasets.encoding import encode_png

XFBENCH = (sys.executable, "-m", "xfbench")
# Large compared with what a process reads of libraries meanwhile.
COUNT, SIDE = 150, 300


@pytest.fixture
def tmpfs(tmp_path):
    """A folder on a file system in memory."""
    temporary_mounts.require_mounting()
    with temporary_mounts.mount(
        tmp_path / "memory", "-t", "tmpfs", "-o", "size=20m", "tmpfs"
    ) as folder:
        yield folder


@pytest.fixture
def run_inline(run_inline, monkeypatch, tmp_path):
    """A function that runs the command in this process, with the test's own data folder."""
    monkeypatch.setenv("XFBENCH_DATA", str(tmp_path / "data"))
    return run_inline


@pytest.fixture(scope="session")
def prepare_digits(tmp_path_factory):
    """The process of `data prepare digits`, run once, and the folder of the data set."""
    root = tmp_path_factory.mktemp("digits")
    process = subprocess.run(
        [*XFBENCH, "data", "prepare", "digits", "--json"],
        env={**os.environ, "XFBENCH_DATA": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return process, root / "digits-raw"


@pytest.fixture
def digits(prepare_digits, tmp_path):
    """The set "digits-raw" in the test's own data folder."""
    return shutil.copytree(prepare_digits[1], tmp_path / "data" / "digits-raw")


@pytest.fixture
def mnist(run_inline, tmp_path):
    """A function that prepares the set "mnist-raw" of noise in the test's own data folder."""

    def prepare(count, *options):
        source = tmp_path / "mnist"
        source.mkdir()
        random = np.random.RandomState(0)
        for prefix, images in (("train", count), ("t10k", 10)):
            pixels = random.randint(0, 256, (images, 28, 28))
            write_idx(source / f"{prefix}-images-idx3-ubyte", pixels)
            write_idx(source / f"{prefix}-labels-idx1-ubyte", np.arange(images) % 10)
        outcome = run_inline("data", "prepare", "mnist", "--from", source, *options)
        assert outcome.returncode == 0, outcome.stderr
        return tmp_path / "data" / "mnist-raw"

    return prepare


@pytest.fixture
def small_set(mnist):
    """The set "mnist-raw" of 40 images."""
    return mnist(40)


@pytest.fixture
def large_set(mnist):
    """The set "mnist-raw" of a few large images, 13 MB in total."""
    return mnist(COUNT, "--size", SIDE)


def write_idx(path, values):
    head = np.array([0x800 + values.ndim, *values.shape], ">u4")
    path.write_bytes(head.tobytes() + values.astype(np.uint8).tobytes())


def build_arguments(*options):
    chosen = "--framework reference --workload lenet --threads 1 --json"
    return ["run", *chosen.split(), *options]


def test_prepare_reports_progress_and_what_it_made(prepare_digits):
    process, folder = prepare_digits
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    assert document["splits"]["train"]["samples"] == 1437 and document["shape"] == [1, 28, 28]
    assert "train: 1437 of 1437" in process.stderr
    assert (folder / "manifest.json").exists()


def test_converted_sets_are_listed_and_equal(run_inline, small_set, tmp_path):
    assert run_inline("data", "convert", small_set, "copy", "--format", "folder").returncode == 0
    line = "data convert data/mnist-raw data/mine --as figures --format tfrecord"
    assert run_inline(*line.split()).returncode == 0
    listed = json.loads(run_inline("data", "list", "--json").stdout)["data"]
    names = [("figures", "tfrecord"), ("mnist", "raw")]
    assert [(data_set["name"], data_set["format"]) for data_set in listed] == names
    check = run_inline("data", "check", small_set, "copy", "--json")
    assert check.returncode == 0 and json.loads(check.stdout)["equal"] is True
    (tmp_path / "copy" / "test" / "7").rename(tmp_path / "copy" / "test" / "seven")
    check = run_inline("data", "check", "copy")
    assert check.returncode == 2 and "is missing" in check.stderr


def test_check_ends_with_status_1_for_another_order(run_inline, small_set):
    run_inline("data", "convert", small_set, "first", "--format", "folder")
    run_inline("data", "convert", "folder:first", "mixed", "--format", "folder")
    check = run_inline("data", "check", "first", "mixed")
    assert check.returncode == 1 and check.stdout.splitlines()[-1] == "different"


@pytest.mark.parametrize(
    "line, words",
    [
        ("prepare mnist", "--from"),
        ("prepare mnsit --from .", "did you mean mnist?"),
        ("prepare mnist --from .", "MNIST has four IDX files"),
        ("prepare folder --from . --size 0", "--size 0"),
        ("prepare folder --from nowhere", "nowhere is not a folder"),
        ("prepare digits --format tfrecords", "did you mean tfrecord?"),
        ("prepare digits --encode jpg", "--encode jpg"),
        ("prepare digits --as a/b", "--as 'a/b'"),
        ("prepare digits --classes 3", "--classes works only with imagenet"),
        ("convert nowhere there", "nowhere is not a folder"),
        ("check nowhere", "manifest.json is missing"),
    ],
)
def test_invalid_arguments_give_a_one_line_error(run_inline, line, words):
    outcome = run_inline("data", *line.split())
    assert outcome.returncode == 2, outcome.stdout
    assert words in outcome.stderr and len(outcome.stderr.splitlines()) <= 2


@pytest.mark.deep
def test_training_is_the_same_from_two_formats(run_inline, digits, tmp_path):
    run_inline("data", "convert", digits, "data/digits-folder", "--format", "folder")
    options = "--data digits-raw,digits-folder --batch-size 32 --epochs 1 --launches 1"
    outcome = run_inline(*build_arguments(*options.split()))
    assert outcome.returncode == 0, outcome.stderr
    first, second = json.loads(outcome.stdout)["records"]
    for record in (first, second):
        assert record["request"]["data"] == "digits"
        assert record["canary"]["relative_error"] < 1e-5
        assert record["learning"][0]["test_accuracy"] > 0.2
        assert str(tmp_path) not in json.dumps(record["request"])
    assert first["measurement"]["losses"] == second["measurement"]["losses"]
    assert first["cell"] != second["cell"]
    [table] = json.loads(run_inline("leaderboard", "--json").stdout)["tables"]
    assert table["data"].startswith("digits ")
    rows = [*table["rows"], *table["unranked"]]
    assert {row["data_format"] for row in rows} == {"raw", "folder"}
    assert "format" in run_inline("leaderboard").stdout


def test_a_set_that_does_not_fit_the_network_is_unsupported(run_inline, small_set):
    options = "--data mnist-raw --steps 1 --batch-size 2 --launches 1 --no-verify"
    outcome = run_inline(*build_arguments("--workload", "lenet,convnet", *options.split()))
    records = {r["request"]["workload"]: r for r in json.loads(outcome.stdout)["records"]}
    assert records["lenet"]["status"] == "ok"
    assert records["convnet"]["status"] == "unsupported"
    assert "1 channels, but convnet reads 3" in records["convnet"]["reason"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--data digitz", "did you mean digits"),
        ("--data digits --loader native", "needs a prepared data set"),
        ("--data mnist-raw --loader native --loader-threads 0", "at least one loader thread"),
        ("--data mnist-raw --loader native --ranks 2 --scaling weak", "native needs one rank"),
        ("--data mnist-raw --loader theirs", "native, xfbench"),
        ("--page-cache cold --steps 2", "prepared data set"),
    ],
)
def test_invalid_input_options_give_a_one_line_error(run_inline, small_set, options, words):
    outcome = run_inline(*build_arguments(*options.split()))
    assert outcome.returncode == 2 and words in outcome.stderr, outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 2


EPOCHS = "--batch-size 50 --epochs 2 --launches 1 --no-verify".split()


@pytest.mark.alone
@pytest.mark.deep
def test_a_record_has_its_medium_and_reads_of_each_epoch(run_inline, large_set):
    options = "--data mnist-raw --page-cache cold,warm".split()
    outcome = run_inline(*build_arguments(*options, *EPOCHS, "--batch-size", "40"))
    records = {r["request"]["page_cache"]: r for r in json.loads(outcome.stdout)["records"]}
    assert records.keys() == {"cold", "warm"}
    for mode, record in records.items():
        assert record["status"] == "ok", record["reason"]
        assert record["storage"]["medium"]["total_bytes"] > 0
        patterns = [(read["pattern"], read["block_bytes"]) for read in record["storage"]["reads"]]
        assert patterns[0] == ("sequential", 2**20) and len(patterns) == 3
        first, second = record["storage"]["epochs"]
        for epoch in (first, second):
            assert epoch["page_cache"] == mode
            assert epoch["bytes"] == -(-COUNT * SIDE**2 // 4096) * 4096
            assert epoch["share"] == 120 / COUNT  # three batches of 40
            if epoch["held"] is None:
                assert epoch["reason"]
            else:
                assert epoch["held"] is True


@pytest.mark.alone
def test_a_cold_epoch_is_read_from_the_device(run_inline, large_set, tmp_path):
    with temporary_mounts.ext4(tmp_path) as disk:
        run_inline("data", "convert", large_set, disk / "mnist", "--format", "lmdb")
        options = ("--data", disk / "mnist", "--page-cache", "cold")
        outcome = run_inline(*build_arguments(*options, *EPOCHS))
    [record] = json.loads(outcome.stdout)["records"]
    for epoch in record["storage"]["epochs"]:
        assert epoch["resident_before"] == 0
        assert epoch["device_bytes"] > 0.96 * epoch["bytes"]
        assert epoch["held"] is True or "reads of libraries" in epoch["reason"]


@pytest.mark.alone
@pytest.mark.deep
def test_ranks_of_a_node_evict_the_page_cache_together(run_inline, large_set, tmp_path):
    options = "--framework torch --ranks 2 --scaling strong --page-cache cold".split()
    with temporary_mounts.ext4(tmp_path) as disk:
        run_inline("data", "convert", large_set, disk / "mnist", "--format", "raw")
        outcome = run_inline(*build_arguments(*options, "--data", disk / "mnist", *EPOCHS))
    [record] = json.loads(outcome.stdout)["records"]
    assert record["status"] == "ok", record["reason"]
    epochs = record["storage"]["epochs"]
    for parts in (epochs[0::2], epochs[1::2]):  # the first rank's, then the second's
        assert sum(part["device_bytes"] for part in parts) > 0.96 * parts[0]["bytes"]
        assert all(part["resident_before"] == 0 for part in parts)
        assert len({part["held"] for part in parts}) == 1
        assert parts[0]["held"] is True or "reads of libraries" in parts[0]["reason"]


def test_two_media_are_two_rows_of_one_table(run_inline, small_set, tmpfs):
    run_inline("data", "convert", small_set, tmpfs / "mnist")
    options = "--steps 2 --batch-size 4 --launches 1 --no-verify"
    line = build_arguments(*options.split(), "--data", f"mnist-raw,{tmpfs}/mnist")
    line.remove("--json")
    outcome = run_inline(*line)
    assert outcome.returncode == 0, outcome.stderr
    assert "tmpfs on memory" in outcome.stdout
    [table] = json.loads(run_inline("leaderboard", "--json").stdout)["tables"]
    media = {row["medium"] for row in table["unranked"]}
    assert len(media) == 2 and "tmpfs on memory" in media
    assert "input" in run_inline("leaderboard", "--view", "storage").stdout


def test_an_interrupt_keeps_the_final_name_free(tmp_path):
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    picture = tmp_path / "picture.png"
    picture.write_bytes(encode_png(np.zeros((1, 8, 8), np.uint8)))
    for number in range(10_000):  # enough for several seconds of work
        (tmp_path / "pictures" / "a" / f"{number}.png").hardlink_to(picture)
    line = ["data", "prepare", "folder", "--from", "pictures", "--to", "set", "--format", "folder"]
    # Children of a background process ignore interrupts by default.
    with subprocess.Popen(
        ["env", "--default-signal=INT", *XFBENCH, *line],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        samples = tmp_path / "set.partial" / "train.samples"
        for _ in range(6000):
            if samples.exists() and samples.stat().st_size:  # all modules have been imported
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    assert messages.splitlines()[-1] == "xfbench: interrupted; finished work is kept"
    assert not (tmp_path / "set").exists()
