"""What a run shows while it runs: a live table on a terminal, plain lines elsewhere."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading

import pytest
from rich.console import Console

from xfbench import progress

HEADING = "images/s (median)"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RUN = (
    *(sys.executable, "-m", "xfbench", "run", "--framework", "reference", "--workload", "lenet"),
    *("--batch-size", "2,4", "--steps", "2", "--warmup", "0", "--launches", "2", "--no-verify"),
)


@pytest.fixture
def terminal():
    """A pseudo-terminal of 100 columns and 40 lines: the ends of the user and of the program."""
    user_end, program_end = pty.openpty()
    fcntl.ioctl(program_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    yield user_end, program_end
    os.close(user_end)


def run_on(terminal, folder, **variables):
    """Run four launches with standard error on the terminal; return what the terminal received."""
    user_end, program_end = terminal
    hidden = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "XFBENCH_RESULTS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        RUN,
        cwd=folder,
        env={**environment, "TERM": "xterm", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=program_end,
    )
    os.close(program_end)
    received = b""
    while select.select([user_end], [], [], 120)[0]:
        try:
            received += os.read(user_end, 65536)
        except OSError:  # the program has closed its end
            break
    assert process.wait(timeout=120) == 0, received
    return received.decode()


def find_rows(text):
    """Return the rows of the last table: cell, median, launches, remaining time."""
    table = ESCAPES.sub("", text).rpartition(HEADING)[2]
    lines = table.replace("\r", "\n").splitlines()[1:]
    return [re.split(r"\s{2,}", line.strip()) for line in lines if line.strip()]


def test_a_run_on_a_terminal_shows_the_table_so_far(terminal, tmp_path):
    received = run_on(terminal, tmp_path)
    frames = received.split(HEADING)[1:]
    # One before and one after each of the four launches, and one when the table is removed.
    assert len(frames) == 9
    rows = find_rows(received)
    assert {row[0] for row in rows} == {
        f"lenet · reference · numpy · 2 threads · global batch size {size}" for size in (2, 4)
    }
    medians = [float(row[1].replace(",", "")) for row in rows]
    assert medians == sorted(medians, reverse=True)
    assert [row[2:] for row in rows] == [["2/2", "0:00"]] * 2
    assert received.count(HIDE_CURSOR) == received.count(SHOW_CURSOR) >= 1
    assert "4/4 lenet" not in received  # no line for a launch that is ok


def test_a_run_without_colours_prints_a_line_for_each_launch(terminal, tmp_path):
    received = run_on(terminal, tmp_path, NO_COLOR="1")
    assert HEADING not in received and "\x1b" not in received
    lines = [line for line in received.splitlines() if re.match(r"\d/4 lenet · reference", line)]
    assert len(lines) == 4 and all("images/s · ok" in line for line in lines)


@pytest.mark.parametrize(
    ("variables", "quiet", "is_terminal", "expected"),
    [
        ({}, False, True, progress.Bar),
        ({"NO_COLOR": "1"}, False, True, progress.Lines),
        ({"TERM": "dumb"}, False, True, progress.Lines),
        ({}, True, True, progress.Failures),
        ({}, False, False, progress.Lines),
        ({"FORCE_COLOR": "1"}, False, False, progress.Lines),
    ],
)
def test_only_a_terminal_gets_the_table(
    terminal, monkeypatch, tmp_path, variables, quiet, is_terminal, expected
):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    place = terminal[1] if is_terminal else tmp_path / "messages"
    with open(place, "w", encoding="utf-8") as stream:  # noqa: PTH123  it may be a descriptor
        monkeypatch.setattr(sys, "stderr", stream)
        assert type(progress.choose_listener(quiet=quiet)) is expected


@pytest.fixture
def show(record):
    """A function that shows the launches of records, and returns what the terminal received."""

    def run(records, *, planned=None, is_maximum=False, height=40):
        stream = io.StringIO()
        bar = progress.Bar(Console(file=stream, force_terminal=True, width=100, height=height))
        bar.launches_started([each.request for each in planned or records], is_maximum)
        try:
            for each in records:
                bar.launch_started(each.request)
                bar.launch_ended(each)
        finally:
            bar.closed()
        return stream.getvalue()

    return run


@pytest.mark.parametrize(("height", "shown"), [(40, 12), (10, 5)])
def test_the_table_shows_the_fastest_cells_and_counts_the_others(show, record, height, shown):
    speeds = [7, 3, 15, 1, 12, 9, 4, 14, 2, 11, 6, 13, 5, 10, 8]
    records = [record((4 / speed,), threads=speed) for speed in speeds]
    *rows, last = find_rows(show(records, height=height))
    fastest = range(15, 15 - shown, -1)
    assert [row[:2] for row in rows] == [
        [f"lenet · reference · numpy · {speed} threads", str(speed)] for speed in fastest
    ]
    assert last == [f"and {15 - shown} more cells"]


def test_the_table_counts_failed_launches_and_those_to_come(show, record):
    crashed = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    done = [
        record((0.1,), 1),
        record(launch=1, fields=crashed, threads=2),
        record((0.1,), 2),
    ]
    to_come = [record((0.1,), 2, threads=2), record((0.1,), 3, seed=1)]
    text = show(done, planned=[*done, *to_come], is_maximum=True)
    assert "at most left" in text
    first, second = find_rows(text)
    assert first[:3] == ["lenet · reference · numpy · 1 thread", "40", "2/3"]
    assert second[:3] == ["lenet · reference · numpy · 2 threads", "–", "1/2, 1 failed"]


def test_a_cell_that_cannot_run_has_no_time_left(show, record):
    refused = {"status": "unsupported", "reason": "it has no LeNet", "measurement": None}
    done = [record(launch=1, fields=refused)]
    to_come = [record(launch=2), record(launch=3)]
    assert find_rows(show(done, planned=[*done, *to_come]))[0][2:] == ["1/3, 1 failed", "0:00"]


def test_nothing_redraws_the_table_during_a_launch(record):
    threads = threading.active_count()
    bar = progress.Bar(Console(file=io.StringIO(), force_terminal=True))
    launch = record()
    bar.launches_started([launch.request], is_maximum=False)
    bar.launch_started(launch.request)
    assert threading.active_count() == threads
    bar.closed()


def test_a_launch_that_was_not_announced_is_counted(record):
    bar = progress.Bar(Console(file=io.StringIO(), force_terminal=True))
    bar.launches_started([record().request], is_maximum=False)
    bar.launch_ended(record(threads=7))
    bar.closed()


def read_until(user_end, *words):
    """Return what the terminal received until one of `words`, or the end of the program."""
    received = b""
    while not any(word.encode() in received for word in words):
        if not select.select([user_end], [], [], 120)[0]:
            break
        try:
            received += os.read(user_end, 65536)
        except OSError:  # the program has closed its end
            break
    return received.decode()


@pytest.mark.parametrize(
    ("listener", "status", "is_named"),
    [(progress.Lines, "ok", True), (progress.Bar, "ok", False), (progress.Bar, "invalid", True)],
)
def test_other_programs_are_named_on_the_screen(record, capsys, listener, status, is_named):
    arguments = [Console(file=io.StringIO())] if listener is progress.Bar else []
    launch = record(fields={"status": status, "reason": "noisy"})
    listener(*arguments).other_programs(launch, "stress (pid 7) used 1.0 cores")
    assert ("during this launch, stress (pid 7)" in capsys.readouterr().err) == is_named


@pytest.fixture
def start_long_run(terminal, tmp_path):
    """A function that starts a run of more than 30 minutes on the terminal."""
    user_end, program_end = terminal
    processes = []

    def start(*options):
        words = RUN[: RUN.index("--batch-size")]
        process = subprocess.Popen(
            [*words, "--no-verify", "--launches", "100", "--min-time", "60s", *options],
            cwd=tmp_path,
            env={**os.environ, "TERM": "xterm", "XFBENCH_RESULTS": str(tmp_path / "results")},
            **dict.fromkeys(("stdin", "stdout", "stderr"), program_end),
            start_new_session=True,
        )
        os.close(program_end)
        processes.append(process)
        return process, user_end

    yield start
    for process in processes:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def test_a_long_plan_asks_before_it_starts(start_long_run, tmp_path):
    process, user_end = start_long_run()
    question = read_until(user_end, "Start? [Y/n]")
    assert "100 launches, at least 110 min" in question and "Start?" in question
    os.write(user_end, b"n\n")
    assert process.wait(timeout=60) == 1
    assert not list((tmp_path / "results").rglob("*.json"))


def test_a_long_plan_with_yes_starts(start_long_run):
    _, user_end = start_long_run("--yes")
    text = read_until(user_end, "Start?", HEADING)
    assert "at least 110 min" in text and "Start?" not in text and HEADING in text
