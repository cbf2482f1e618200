"""Tests of `xfbench report`: the file that it writes, and its errors."""

import shutil


def test_report_writes_a_self_contained_file(run_inline, results_folder, tmp_path):
    (tmp_path / "out").mkdir()
    completed = run_inline("report", "--results", str(results_folder), "--output", "out/lenet.html")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("out/lenet.html: 4 launches")
    text = (tmp_path / "out" / "lenet.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "http:" not in text and "https:" not in text and "url(" not in text
    second_run = run_inline("report", "--results", str(results_folder), "--output", "again.html")
    assert second_run.returncode == 0
    assert (tmp_path / "again.html").read_text() == text


def test_a_report_has_only_the_chosen_launches(run_inline, results_folder, tmp_path):
    filters = ["--where", "workload=lenet,global_batch_size=4"]
    completed = run_inline("report", "--results", str(results_folder), *filters)
    assert completed.stdout.startswith("report.html: 2 launches")
    text = (tmp_path / "report.html").read_text()
    assert "--batch-size 4" in text and "--batch-size 8" not in text


def test_a_filter_that_nothing_matches_is_explained(run_inline, results_folder, tmp_path):
    filters = ["--where", "framework=pytorch"]
    completed = run_inline("report", "--results", str(results_folder), *filters)
    assert completed.returncode == 1
    assert "match request.framework=pytorch: framework is one of reference" in completed.stderr
    assert not (tmp_path / "report.html").exists()


def test_invalid_arguments_give_one_line_and_no_file(run_inline, results_folder, tmp_path):
    for arguments, word in (
        (["--results", "nowhere"], "has no results"),
        (["--results", str(results_folder), "--where", "torch"], "FIELD=VALUE"),
        (["--results", str(results_folder), "--output", "/dev/null/report.html"], "--output"),
        (["--results", str(results_folder), "--output", "new/report.html"], "no such folder: new"),
        (["--results", str(results_folder), "--output", "report.pdf"], "expected FILE.html"),
    ):
        completed = run_inline("report", *arguments)
        assert completed.returncode == 2 and word in completed.stderr, (arguments, completed.stderr)
        assert len(completed.stderr.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_a_damaged_record_is_named_and_left_out(run_inline, results_folder, tmp_path):
    copy = shutil.copytree(results_folder, tmp_path / "copy")
    record = next((copy / "records").glob("??/*.json"))
    record.write_text(
        record.read_text().replace('"framework": "reference"', '"framework": "torch"')
    )
    completed = run_inline("report", "--results", "copy")
    assert completed.stdout.startswith("report.html: 3 launches")
    assert record.name in completed.stderr
