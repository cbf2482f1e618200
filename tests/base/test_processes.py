"""Processes are ended with whoever started them."""

import os
import subprocess
import sys
import threading

import psutil
import pytest

from tests.remaining_processes import list_running, wait_for
from xfbench.base import processes


def test_interrupt_ends_commands_running_in_threads(tmp_path):
    """As by an interrupt, which only the main thread hears: what others wait for is ended."""
    started, outcomes = threading.Event(), []
    script = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    command = processes.Command(
        (sys.executable, "-c", f"{script}print(1, flush=True); time.sleep(120)"),
        dict(os.environ),
        tmp_path,
    )

    def run_command():
        out = tmp_path / "out"
        watcher = threading.Thread(target=wait_for_output, args=(out,))
        watcher.start()
        outcomes.append(
            processes.run([command], stdout=[out], stderr=[tmp_path / "err"], time_limit=100)
        )
        watcher.join()

    def wait_for_output(out):
        for _ in range(2000):
            if out.exists() and out.read_text():
                break
            threading.Event().wait(0.01)
        started.set()

    with pytest.raises(KeyboardInterrupt), processes.command_threads(2) as pool:
        pool.submit(run_command)
        assert started.wait(60)
        raise KeyboardInterrupt
    [outcome] = outcomes
    assert outcome.message == "the alarm ended it"
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


WAITING_SCRIPT = """
import os, pathlib, sys
from xfbench.base import processes
shell = ["sh", "-c", "setsid sleep 888.5 & exec sleep 888.5"]
here = pathlib.Path(sys.argv[2])
if sys.argv[1] == "output":
    processes.output(shell, cwd=here, timeout=float(sys.argv[3]))
started = processes.Command(tuple(shell), dict(os.environ), here)
files = {"stdout": [here / "out"], "stderr": [here / "err"]}
processes.run([started], **files, time_limit=float(sys.argv[3]))
"""


def list_sleepers(folder):
    return list_running(folder, lambda process: "888.5" in process.cmdline())


@pytest.mark.parametrize("function", ["run", "output"])
def test_commands_end_when_their_starter_is_killed(tmp_path, function):
    """With what they have started in sessions of their own."""
    starter = subprocess.Popen(
        [sys.executable, "-c", WAITING_SCRIPT, function, str(tmp_path), "600"]
    )
    wait_for(lambda: len(list_sleepers(tmp_path)) == 2)
    starter.kill()
    starter.wait()
    wait_for(lambda: not list_sleepers(tmp_path), 15)


@pytest.mark.parametrize("function", ["run", "output"])
def test_timeout_ends_a_command_and_its_descendants(tmp_path, function):
    process = subprocess.run(
        [sys.executable, "-c", WAITING_SCRIPT, function, str(tmp_path), "0.5"],
        capture_output=True,
        check=False,
    )
    assert (b"no answer within 0.5 s" in process.stderr) == (function == "output")
    assert list_sleepers(tmp_path) == []


def test_keeper_process_restarts_after_it_is_killed(tmp_path):
    """A system that lacks memory may choose him."""
    script = "import os, psutil\nfrom xfbench.base import processes\nkept = []\n"
    script += "for _ in range(2):\n"
    script += "    assert processes.output(['echo', 'here'], timeout=9) == 'here\\n'\n"
    script += "    [one] = psutil.Process().children()\n"
    script += "    kept.append(one.pid)\n"
    script += "    one.kill()\n"
    script += "    one.wait()\n"
    script += "assert kept[0] != kept[1]\n"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
