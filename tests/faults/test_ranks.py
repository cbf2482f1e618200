"""Ranks that end at any moment, and strangers that connect to the driver's watch.

Deaths in a step, hangs, lost watchers and missing programs are in tests/execution/test_ranks.py and
tests/launchers; failures of nodes and jobs are in tests/cluster.
"""

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fake_framework import SLOW, STRATEGY, TWO_RANKS
from tests.remaining_processes import list_running, wait_for
from xfbench.execution.launch import LaunchContext
from xfbench.execution.watch import Watch
from xfbench.session import Session
from xfbench.store.results_folder import Store

SECOND = "import atexit\nSECOND = os.environ.get('XFBENCH_RANK') == '1'\n"
MOMENTS = {
    "at its start": ("if SECOND: os._exit(5)", "no reply: it ended with exit status 5"),
    "while it builds": (
        "def build(*_): os.abort() if SECOND else time.sleep(600)",
        "no reply: it was ended by SIGABRT",
    ),
    "when all steps are done": (
        "Trainer.runtime_info = lambda self: os._exit(6) if SECOND else time.sleep(600)",
        "no reply: it ended with exit status 6",
    ),
    "after its reply": (
        "SECOND and atexit.register(os._exit, 3)",
        "after its reply it ended with exit status 3",
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_rank_that_ends_at_any_moment_is_named(launch_fake, moment):
    lines, message = MOMENTS[moment]
    record, folder = launch_fake(SECOND + lines, **TWO_RANKS)
    assert record.status == "crashed"
    assert record.reason.startswith(f"rank 1 of 2: {message}"), record.reason
    assert {"stdout", "stderr", "stdout.1", "stderr.1"} <= {path.name for path in folder.iterdir()}


@pytest.mark.deep
def test_collective_with_a_stopped_rank_times_out(cell, tmp_path):
    """A rank is suspended during training while PyTorch's all-reduce runs over gloo."""
    training_cell = cell(
        framework="torch",
        environment="managed",
        kernel="onednn",
        **{"ranks": 2, "strategy": "ddp", "scaling": "weak", "global_batch_size": 8},
        steps=10**6,
    )
    session = Session(LaunchContext(Store(tmp_path / "results"), time_limit=30.0))
    session.prepare(["torch"])

    def suspend_rank():
        ranks = wait_for(
            lambda: len(processes := list_training_ranks(tmp_path)) == 2 and processes, 30
        )
        time.sleep(6)  # training has started by then
        ranks[0].suspend()

    with ThreadPoolExecutor(1) as pool:
        suspension = pool.submit(suspend_rank)
        [record] = session.launch([training_cell.request(1)])
        suspension.result()
    assert record.status == "timed_out", record.reason
    assert list_running(tmp_path) == []


def list_training_ranks(folder):
    """Return the processes of PyTorch ranks, recognized by the threads of gloo."""
    return list_running(folder, lambda process: process.num_threads() > 3)


def test_occupied_port_ends_the_launch_with_the_server_message(launch_fake):
    """Another process took the port after xfbench found it free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        serve = "import socket, time; socket.create_server(('127.0.0.1', {})); time.sleep(600)"
        serve = serve.format(server.getsockname()[1])
        strategy = {"title": "with a server", "helpers": [{"ROLE": "server"}], "serve": serve}
        record, _ = launch_fake(
            SLOW, adapter={"together": {STRATEGY: strategy}}, steps=100, **TWO_RANKS
        )
    assert record.status == "crashed"
    assert record.reason.startswith("a helper of strategy side by side: it ended with exit status")
    assert "Address already in use" in record.reason


def test_ranks_on_different_kinds_of_nodes_are_invalid(shared_fake_launch, judge_changed_reply):
    """A queue with both kinds of nodes can allocate such ranks."""
    other_machine = {"cpu_model": "Another 9000"}
    ranks = shared_fake_launch(**TWO_RANKS)
    record = judge_changed_reply(ranks, lambda reply: reply["machine"].update(other_machine))
    assert record.status == "invalid"
    assert "nodes of different kinds (" in record.reason
    assert "Another 9000" in record.reason and "--constraint" in record.reason
    assert record.measurement.step_seconds


@pytest.fixture
def watch():
    with Watch(2, 1, "127.0.0.1") as new_watch:
        yield new_watch


@contextlib.contextmanager
def connect_callers(watch, count):
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(watch.listener.getsockname()))
            for _ in range(count)
        ]


def test_watch_ignores_strangers_and_still_accepts_ranks(watch):
    with connect_callers(watch, 300) as strangers:
        for number, stranger in enumerate(strangers[::3]):
            lines = [b"ended 1\n", b"x" * 5000, f"{'é' * 32} {number % 2} node\n".encode()]
            with contextlib.suppress(OSError):
                stranger.sendall(lines[number % 3])
        with connect_callers(watch, 1) as [rank]:
            rank.sendall(f"{watch.token} 1 node\n".encode())
            time.sleep(0.2)
            assert watch.failure is None
            rank.sendall(b"ended 7\n")
            wait_for(lambda: watch.failure)
    assert (watch.failure.rank, watch.failure.status) == (1, 7)
    assert len(watch._text) <= 2 + 64 + 2


@pytest.mark.parametrize("line", ["ended", "ended x", "ended " + "9" * 900, "", "\u0663"])
def test_watch_ignores_malformed_lines(watch, line):
    with connect_callers(watch, 1) as [rank]:
        rank.sendall(f"{watch.token} 0 node\n{line}\nended 9\n".encode())
        wait_for(lambda: watch.failure)
    assert (watch.failure.rank, watch.failure.status) == (0, 9)


@pytest.mark.parametrize("number", ["2", "-1", "1.0", "\u0661", "9" * 100, ""])
def test_watch_rejects_an_unknown_rank_number(watch, number):
    with connect_callers(watch, 1) as [rank]:
        rank.sendall(f"{watch.token} {number} node\nended 9\n".encode())
        rank.settimeout(10)
        with contextlib.suppress(ConnectionError):
            assert rank.recv(1) == b""
    assert watch.failure is None
