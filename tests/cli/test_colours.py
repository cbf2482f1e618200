"""Colours of tables: on a terminal only, and not if NO_COLOR is set."""

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.sample_records import SOFTWARE
from xfbench.host.machine import describe_machine
from xfbench.store.results_folder import Store

STYLE = re.compile(r"\x1b\[\d+m")
COMMANDS = [
    *("compare threads=2 threads=1", "leaderboard", "results list", "workload list"),
    *(
        pytest.param(words, marks=pytest.mark.deep)
        for words in ("leaderboard --view slowdown", "framework list", "data list", "study list")
    ),
]


@pytest.fixture
def folder(record, tmp_path):
    """A folder with results: two threads are faster in LeNet, slower in convnet; a crash."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    for workload, threads, seconds in (
        *(("lenet", 1, 0.2), ("lenet", 2, 0.1)),
        *(("convnet", 1, 0.1), ("convnet", 2, 0.2)),
    ):
        for launch in range(1, 7):
            steps = (seconds * (1 + 0.001 * launch),)
            settings = {"workload": workload, "threads": threads}
            store.add(record(steps=steps, launch=launch, fields=fields, **settings))
    crash = {"status": "crashed", "reason": "rank 0 was killed", "measurement": None}
    store.add(record(fields=fields | crash, threads=4))
    return tmp_path


@pytest.fixture
def run(folder):
    """A function that runs a command and returns its output, on a terminal or in a pipe."""
    hidden = ("NO_COLOR", "FORCE_COLOR", "XFBENCH_RESULTS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"TERM": "xterm", "COLUMNS": "100"}

    def run_command(words, *, on_terminal=True, **variables):
        user_end, program_end = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "xfbench", *words.split()],
            cwd=folder,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=program_end if on_terminal else subprocess.PIPE,
        )
        os.close(program_end)
        text = b""
        try:
            while part := os.read(user_end, 65536) if on_terminal else process.stdout.read():
                text += part
        except OSError:  # the program has closed its end
            pass
        os.close(user_end)
        assert process.wait(timeout=60) == 0
        return text.decode().replace("\r\n", "\n")

    return run_command


@pytest.mark.parametrize("words", COMMANDS)
def test_a_terminal_gets_the_text_of_a_pipe_with_styles(run, words):
    coloured = run(words)
    plain = run(words, on_terminal=False)
    assert "\x1b[1m" in coloured
    assert "\x1b" not in plain
    assert STYLE.sub("", coloured) == plain


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_without_colours_gets_none(run, variables):
    assert "\x1b" not in run("compare threads=2 threads=1", **variables)


def test_an_empty_no_color_is_ignored_and_a_pipe_never_gets_colours(run):
    assert "\x1b" in run("results list", NO_COLOR="")
    assert "\x1b" not in run("results list", on_terminal=False, FORCE_COLOR="1")


def test_verdicts_failures_reasons_and_notes_have_their_styles(run):
    verdicts = run("compare threads=2 threads=1")
    assert "\x1b[32mfaster\x1b[0m" in verdicts and "\x1b[31mslower\x1b[0m" in verdicts
    assert "\x1b[2mdetectable: " in verdicts
    assert "\x1b[31mcrashed\x1b[0m" in run("results list")
    board = run("leaderboard")
    assert "\x1b[1mnot ranked\x1b[0m" in board and "\x1b[33m[1] no equality cert" in board


@pytest.mark.deep
@pytest.mark.parametrize("format_name", ["markdown", "latex", "html", "csv", "json"])
def test_other_formats_have_no_colours(run, format_name):
    assert "\x1b" not in run(f"leaderboard --format {format_name}")
    if format_name == "markdown":
        assert "\x1b" not in run("compare threads=2 threads=1 --markdown")
