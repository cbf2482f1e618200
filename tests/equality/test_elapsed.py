"""Tests of progress lines while a step of the verification runs."""

import threading

import pytest

from xfbench.equality import elapsed, jobs
from xfbench.equality.verify import Verifier


@pytest.fixture
def fast_lines(monkeypatch):
    """Lines follow each other at once."""
    monkeypatch.setattr(elapsed, "_FIRST_WAITS_S", (0.001,))
    monkeypatch.setattr(elapsed, "_WAIT_S", 0.001)


def test_a_long_step_says_again_and_again_that_it_runs(fast_lines):
    lines, is_second = [], threading.Event()

    def say(text):
        lines.append(text)
        if len(lines) > 1:
            is_second.set()

    with elapsed.say_elapsed_time(say, "jax xla: lenet, 18 cases"):
        assert is_second.wait(60)
    count = len(lines)
    assert all(line.startswith("jax xla: lenet, 18 cases: running for ") for line in lines)
    assert not any(thread.name == "repeated calls" for thread in threading.enumerate())
    assert len(lines) == count


def test_a_short_step_says_nothing():
    lines = []
    with elapsed.say_elapsed_time(lines.append, "lenet"):
        pass
    assert lines == []


def test_cases_of_a_framework_are_such_a_step(fast_lines, cell):
    said = threading.Event()

    def run(documents, *_):
        assert said.wait(60)
        return jobs.CaseResults({}, {})

    def say(text):
        if text.startswith("reference numpy: lenet, 2 cases: running for "):
            said.set()

    Verifier(say, run=run).run_cases(cell().request(1), None, [{}, {}], None)
    assert said.is_set()
