"""Find the processes of a test, and wait for them to start or end."""

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


def list_workers(folder):
    """Return the workers, on any node, that run below `folder`."""
    workers = []
    for process in psutil.process_iter(["cmdline", "status"]):
        with contextlib.suppress(psutil.Error):
            is_worker = (process.info["cmdline"] or [])[1:2] == ["worker.pyz"]
            if is_worker and process.info["status"] != "zombie" and str(folder) in process.cwd():
                workers.append(process)
    return workers


def list_ranks(folder):
    """Return the workers that are children of another worker: ranks, but not their watchers."""
    workers = list_workers(folder)
    worker_pids = {process.pid for process in workers}
    ranks = []
    for process in workers:
        with contextlib.suppress(psutil.Error):
            if process.ppid() in worker_pids:
                ranks.append(process)
    return ranks


def wait_for(condition, timeout_s=30):
    """Wait until `condition` returns something true; return it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if outcome := condition():
            return outcome
        time.sleep(0.05)
    raise AssertionError("the condition did not become true in time")


def wait_until_workers_end(folder, seconds=30):
    """Wait for all workers to end; return those that still run.

    This takes 1 to 13 s here. Slurm alone would take longer to notice a lost node.
    """
    deadline = time.monotonic() + seconds
    while (workers := list_workers(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return workers
