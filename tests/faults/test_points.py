"""Wherever a run is cut short: after `--resume` it is as if nothing had happened.

By a kill before each change that the driver makes, and by a disk that is full at each of them.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import temporary_mounts
from tests.faults.points import killed
from tests.remaining_processes import list_running, wait_for
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def words(odd):
    """A run of two launches."""
    return odd("", launches=2)


def run(number, log, words, results):
    """The command's exit status, and its words on standard error."""
    done = subprocess.run(
        killed(number, log, *words, f"--results={results}"),
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


def outcome(results):
    """What the records are of, and how they ended; nothing else is in their folder."""
    complaints = []
    kept = [
        (record.request.launch, record.status)
        for record in Store(results).records(complaints.append)
    ]
    assert complaints == []
    return sorted(kept)


def gone_on_with(words, results, folder):
    """That the run ends as it would have, nothing lost or twice, and nothing runs on."""
    status, told = run(0, folder / "again", [*words, "--resume"], results)
    assert status == 0, told
    assert outcome(results) == [(1, "ok"), (2, "ok")]
    wait_for(lambda: not list_running(folder), 15)


def points(words, tmp_path):
    """All that an undisturbed run changes, in order: what, and where in the source."""
    log = tmp_path / "points"
    run(0, tmp_path / "first", words, tmp_path / "earlier")  # packs the worker, once
    status, told = run(0, log, words, tmp_path / "whole")
    assert status == 0, told
    assert outcome(tmp_path / "whole") == [(1, "ok"), (2, "ok")]
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def _killed_at(numbers, words, tmp_path):
    for number in numbers:
        results = tmp_path / f"killed-{number}"
        status, told = run(number, tmp_path / f"log-{number}", words, results)
        assert status == -9, (number, told)
        gone_on_with(words, results, tmp_path)


def test_a_killed_driver_is_resumed(words, tmp_path):
    """Killed before the last of its launches starts, and before the last record is stored."""
    changes = [event for event, _ in points(words, tmp_path)]
    last = {event: number for number, event in enumerate(changes, 1)}
    _killed_at([last["subprocess.Popen"], last["os.rename"]], words, tmp_path)


@pytest.mark.deep
def test_driver_killed_at_each_place_is_resumed(words, tmp_path):
    """Killed once before the last change that each line of the source makes."""
    found = points(words, tmp_path)
    last = {point: number for number, point in enumerate(found, 1)}
    assert {event for event, _ in last} >= {"open", "os.rename", "os.mkdir", "subprocess.Popen"}
    _killed_at(last.values(), words, tmp_path)


@pytest.mark.long
def test_resume_completes_a_run_killed_at_every_change(words, tmp_path):
    _killed_at(range(1, len(points(words, tmp_path)) + 1), words, tmp_path)


def _needs(words, tmp_path):
    """How many files there are after an undisturbed run, and how many pages they take."""
    with temporary_mounts.tmpfs(tmp_path, "whole") as disk:
        empty = os.statvfs(disk)
        status, told = run(0, tmp_path / "log", words, disk / "results")
        assert status == 0, told
        full = os.statvfs(disk)
    return empty.f_ffree - full.f_ffree, empty.f_bfree - full.f_bfree


def _full_at(limits, words, tmp_path):
    """Each of the limits, `mount`'s options for a disk in memory, is met once."""
    for number, limit in enumerate(limits):
        with temporary_mounts.tmpfs(tmp_path, f"full-{number}", options=limit) as disk:
            results = disk / "results"
            status, told = run(0, tmp_path / f"log-{number}", words, results)
            if status:
                last = told.strip().splitlines()[-1]
                assert "No space left on device" in last, (limit, told)
                assert "defect" not in last, (limit, told)
            if results.is_dir():
                assert set(outcome(results)) <= {(1, "ok"), (2, "ok")}, limit
            temporary_mounts.remount(disk, "size=64m,nr_inodes=10000")
            gone_on_with(words, results, tmp_path)


@pytest.mark.long
def test_resume_completes_a_run_that_ran_out_of_inodes(words, tmp_path):
    """For each file of the run."""
    files, _ = _needs(words, tmp_path)
    _full_at([f"size=64m,nr_inodes={count}" for count in range(2, files + 2)], words, tmp_path)


@pytest.mark.long
def test_resume_completes_a_run_that_filled_the_disk(words, tmp_path):
    _, pages = _needs(words, tmp_path)
    _full_at([f"size={count * PAGE}" for count in range(1, pages + 1)], words, tmp_path)
