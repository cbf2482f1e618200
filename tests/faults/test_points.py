"""`--resume` completes a run that was interrupted at any point.

The driver is killed before each of its changes, or the disk is full at that change.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import temporary_mounts
from tests.faults.points import build_command
from tests.remaining_processes import list_running, wait_for
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def arguments(run_arguments):
    """Return the arguments of a run of two launches."""
    return run_arguments("", launches=2)


def run_killed(number, log, arguments, results):
    """Return the command's exit status and standard error."""
    completed = subprocess.run(
        build_command(number, log, *arguments, f"--results={results}"),
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return completed.returncode, completed.stderr


def read_outcomes(results):
    """Return the launch number and status of each record; fail if another file is there."""
    complaints = []
    outcomes = [
        (record.request.launch, record.status)
        for record in Store(results).records(complaints.append)
    ]
    assert complaints == []
    return sorted(outcomes)


def check_resume(arguments, results, folder):
    """Check that resuming gives each record once and leaves no process running."""
    status, errors = run_killed(0, folder / "again", [*arguments, "--resume"], results)
    assert status == 0, errors
    assert read_outcomes(results) == [(1, "ok"), (2, "ok")]
    wait_for(lambda: not list_running(folder), 15)


def record_changes(arguments, tmp_path):
    """Return the event and source position of each change of an uninterrupted run, in order."""
    log = tmp_path / "points"
    run_killed(0, tmp_path / "first", arguments, tmp_path / "earlier")  # packs the worker once
    status, errors = run_killed(0, log, arguments, tmp_path / "whole")
    assert status == 0, errors
    assert read_outcomes(tmp_path / "whole") == [(1, "ok"), (2, "ok")]
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def _check_kills(numbers, arguments, tmp_path):
    for number in numbers:
        results = tmp_path / f"killed-{number}"
        status, errors = run_killed(number, tmp_path / f"log-{number}", arguments, results)
        assert status == -9, (number, errors)
        check_resume(arguments, results, tmp_path)


def test_killed_driver_is_resumed(arguments, tmp_path):
    """The driver is killed before the last launch starts and before the last record is stored."""
    events = [event for event, _ in record_changes(arguments, tmp_path)]
    last_numbers = {event: number for number, event in enumerate(events, 1)}
    _check_kills([last_numbers["subprocess.Popen"], last_numbers["os.rename"]], arguments, tmp_path)


@pytest.mark.deep
def test_driver_killed_in_each_module_is_resumed(arguments, tmp_path):
    """The driver is killed before the last change of each kind that a module makes."""
    changes = [
        (event, position.partition(":")[0])
        for event, position in record_changes(arguments, tmp_path)
    ]
    last_numbers = {change: number for number, change in enumerate(changes, 1)}
    print(f"{len(last_numbers)} of {len(changes)} changes")
    assert {event for event, _ in last_numbers} >= {
        "open",
        "os.rename",
        "os.mkdir",
        "subprocess.Popen",
    }
    _check_kills(last_numbers.values(), arguments, tmp_path)


@pytest.mark.long
def test_resume_completes_a_run_killed_at_every_change(arguments, tmp_path):
    _check_kills(range(1, len(record_changes(arguments, tmp_path)) + 1), arguments, tmp_path)


def _measure_disk_use(arguments, tmp_path):
    """Return the number of files and pages that an uninterrupted run needs."""
    with temporary_mounts.tmpfs(tmp_path, "whole") as disk:
        free_before = os.statvfs(disk)
        status, errors = run_killed(0, tmp_path / "log", arguments, disk / "results")
        assert status == 0, errors
        free_after = os.statvfs(disk)
    return free_before.f_ffree - free_after.f_ffree, free_before.f_bfree - free_after.f_bfree


def _check_full_disks(limits, arguments, tmp_path):
    """Check a run on a tmpfs with each of the limits, given as options of `mount`."""
    for number, limit in enumerate(limits):
        with temporary_mounts.tmpfs(tmp_path, f"full-{number}", options=limit) as disk:
            results = disk / "results"
            status, errors = run_killed(0, tmp_path / f"log-{number}", arguments, results)
            if status:
                last_line = errors.strip().splitlines()[-1]
                assert "No space left on device" in last_line, (limit, errors)
                assert "defect" not in last_line, (limit, errors)
            if results.is_dir():
                assert set(read_outcomes(results)) <= {(1, "ok"), (2, "ok")}, limit
            temporary_mounts.remount(disk, "size=64m,nr_inodes=10000")
            check_resume(arguments, results, tmp_path)


@pytest.mark.long
def test_resume_completes_a_run_that_ran_out_of_inodes(arguments, tmp_path):
    """The limit is tried at each number of files that the run creates."""
    files, _ = _measure_disk_use(arguments, tmp_path)
    _check_full_disks(
        [f"size=64m,nr_inodes={count}" for count in range(2, files + 2)], arguments, tmp_path
    )


@pytest.mark.long
def test_resume_completes_a_run_that_filled_the_disk(arguments, tmp_path):
    _, pages = _measure_disk_use(arguments, tmp_path)
    _check_full_disks(
        [f"size={count * PAGE}" for count in range(1, pages + 1)], arguments, tmp_path
    )
