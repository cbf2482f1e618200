"""`xfbench report`: the file that it writes, and what it refuses."""

import shutil

import pytest

from tests import command_runner


@pytest.fixture
def xfbench(tmp_path, monkeypatch, capsys):
    """A function that runs the command in an empty folder, within this process."""
    return command_runner.make_runner(monkeypatch, capsys, tmp_path)


def test_report_writes_a_self_contained_file(xfbench, folder, tmp_path):
    done = xfbench("report", "--results", str(folder), "--output", "out/lenet.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("out/lenet.html: 4 launches")
    text = (tmp_path / "out" / "lenet.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "http:" not in text and "https:" not in text and "url(" not in text
    again = xfbench("report", "--results", str(folder), "--output", "again.html")
    assert again.returncode == 0
    assert (tmp_path / "again.html").read_text() == text


def test_a_report_has_only_the_chosen_launches(xfbench, folder, tmp_path):
    wanted = ["--where", "workload=lenet,global_batch_size=4"]
    done = xfbench("report", "--results", str(folder), *wanted)
    assert done.stdout.startswith("report.html: 2 launches")
    text = (tmp_path / "report.html").read_text()
    assert "--batch-size 4" in text and "--batch-size 8" not in text


def test_an_impossible_report_is_one_line(xfbench, folder, tmp_path):
    for arguments, word in (
        (["--results", "nowhere"], "has no results"),
        (["--results", str(folder), "--where", "torch"], "FIELD=VALUE"),
        (["--results", str(folder), "--where", "framework=torch"], "no record"),
        (["--results", str(folder), "--output", "/dev/null/report.html"], "--output"),
    ):
        done = xfbench("report", *arguments)
        assert done.returncode == 2 and word in done.stderr, (arguments, done.stderr)
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_a_damaged_record_is_named_and_left_out(xfbench, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    record = next((copy / "records").glob("??/*.json"))
    record.write_text(
        record.read_text().replace('"framework": "reference"', '"framework": "torch"')
    )
    done = xfbench("report", "--results", "copy")
    assert done.stdout.startswith("report.html: 3 launches")
    assert record.name in done.stderr
