"""Calls in other processes: order, failures, and processes that end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xfbench.base import parallel


@pytest.fixture(autouse=True)
def several_cpus(monkeypatch):
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: {0, 1})


# The functions that are called are local ones, because another process cannot import this module.


@pytest.mark.parametrize("in_processes", [True, False])
def test_results_are_in_the_order_of_the_tasks(in_processes):
    def wait_less_for_later_tasks(number):
        time.sleep((10 - number) / 100)
        return number

    numbers = range(10)
    results = parallel.map_in_order(wait_less_for_later_tasks, numbers, in_processes=in_processes)
    assert [*results] == [*numbers]


@pytest.fixture
def list_pids():
    """Return a function that returns the ids of the processes that make calls."""

    def list_pids(calls, in_processes):
        results = parallel.map_in_order(
            lambda _: os.getpid(), range(calls), in_processes=in_processes
        )
        return {*results}

    return list_pids


def test_calls_are_made_in_other_processes(list_pids):
    pids = list_pids(20, True)
    assert pids and os.getpid() not in pids
    assert list_pids(3, False) == {os.getpid()}


def test_one_cpu_needs_no_other_process(monkeypatch, list_pids):
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: {0})
    assert list_pids(3, True) == {os.getpid()}


@pytest.mark.parametrize("in_processes", [True, False])
def test_exception_of_a_call_reaches_the_caller(in_processes):
    def fail_on_three(number):
        if number == 3:
            raise ValueError("three")
        return number

    results = parallel.map_in_order(fail_on_three, range(9), in_processes=in_processes)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_tasks_of_a_killed_process_are_done_here():
    test_pid = os.getpid()

    def kill_other_process(number):
        if os.getpid() != test_pid and number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    results = parallel.map_in_order(kill_other_process, range(12), in_processes=True)
    assert [*results] == [*range(12)]


def test_few_tasks_are_taken_ahead():
    taken = []

    def tasks():
        for number in range(100):
            taken.append(number)
            yield number

    results = parallel.map_in_order(abs, tasks(), in_processes=True)
    next(results)
    assert len(taken) == 4
    results.close()


def test_script_without_a_main_guard_is_not_run_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from xfbench.base import parallel\n"
        "print('started')\n"
        "print(sum(parallel.map_in_order(abs, range(10), in_processes=True)))\n"
    )
    outcome = subprocess.run(
        [sys.executable, script],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path.cwd(),
    )
    assert outcome.stdout == "started\n45\n" and outcome.stderr == ""
