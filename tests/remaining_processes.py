"""Find processes that a test leaves running."""

import contextlib
import os
import time

import psutil


def list_running(folder, matches=lambda process: True):
    """Return the other processes that run in or below `folder` and that `matches` accepts.

    Processes that end meanwhile are left out.
    """
    processes = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(psutil.Error):
            is_in_folder = f"{process.cwd()}/".startswith(f"{folder}/")
            is_alive = process.info["status"] != "zombie" and process.pid != os.getpid()
            if is_in_folder and is_alive and matches(process):
                processes.append(process)
    return processes


def wait_for(condition, timeout_s=30):
    """Wait until `condition` returns something true; return it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if outcome := condition():
            return outcome
        time.sleep(0.05)
    raise AssertionError("the condition did not become true in time")
