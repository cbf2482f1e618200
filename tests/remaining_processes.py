"""What a test has left running."""

import contextlib
import os
import time

import psutil


def left_running(folder, like=lambda process: True):
    """Processes that run in `folder` or below it and are `like` what is asked, but this one.

    One that ends while it is being looked at is not among them.
    """
    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(psutil.Error):
            ours = f"{process.cwd()}/".startswith(f"{folder}/")
            there = process.info["status"] != "zombie" and process.pid != os.getpid()
            if ours and there and like(process):
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
