"""What a test has left running."""

import contextlib
import os
import time

import psutil


def left_running(folder):
    """Processes that run in `folder` or below it, but this one."""
    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(psutil.Error):
            ours = f"{process.cwd()}/".startswith(f"{folder}/")
            if ours and process.info["status"] != "zombie" and process.pid != os.getpid():
                found.append(process)
    return found


def until(there, seconds=30):
    """Wait until something is there; what it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := there():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about")
