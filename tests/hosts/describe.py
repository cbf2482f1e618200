"""Describe each host of a list, in a mount namespace where its files are those of the system.

`python -m tests.hosts.describe LIST.json` prints what xfbench says, by the name of the host. Each
host is a child of this process, so that xfbench is imported once.
"""

import contextlib
import ctypes
import functools
import gc
import io
import json
import os
import platform
import sys
from pathlib import Path

_NEW_MOUNT_NAMESPACE, _BIND, _RECURSIVE, _PRIVATE = 0x20000, 4096, 16384, 1 << 18
_DESCRIBING = ("xfbench.host", "xfbench.worker", "archspec")
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source, target, flags):
    """Mount, or raise OSError with the target."""
    if _LIBC.mount(os.fsencode(source), os.fsencode(target), None, flags, None):
        raise OSError(ctypes.get_errno(), "mount", str(target))


def enter_host(files, variables):
    """Give this process the files of a host, by the paths that they replace, and its variables."""
    if _LIBC.unshare(_NEW_MOUNT_NAMESPACE):
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", _RECURSIVE | _PRIVATE)
    for target, source in files.items():
        mount(source, target.replace("/proc/self/", f"/proc/{os.getpid()}/"), _BIND)
    os.environ.update(variables)
    platform._uname_cache = None
    for each in gc.get_objects():
        is_cache = isinstance(each, functools._lru_cache_wrapper)
        if is_cache and each.__module__.startswith(_DESCRIBING):
            each.cache_clear()


def run_command(*arguments):
    """Return the JSON that `xfbench ARGUMENTS` prints."""
    from xfbench.cli import main

    sys.argv = ["xfbench", *arguments]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main()
    return json.loads(output.getvalue())


def describe(ranks, pinning):
    """Return what the commands say, and the CPUs of `ranks` ranks that share the cores."""
    from xfbench.host import doctor
    from xfbench.worker import affinity

    doctor._SAMPLE_SECONDS = 0.01
    machine = run_command("machine", "--json")
    findings = run_command("doctor", "--json")["findings"]
    plan = run_command(
        *("run", "--framework", "reference", "--workload", "lenet", "--dry-run", "--json")
    )
    allowed = os.sched_getaffinity(0)
    threads = max(1, machine["cores"] // ranks)
    laid_out = affinity.plan_cpus(pinning, ranks, threads, 0, allowed)
    return {
        "machine": machine,
        "doctor": findings,
        "threads": plan["requests"][0]["threads"],
        "laid_out": laid_out,
    }


def main():
    hosts = json.loads(Path(sys.argv[1]).read_text())
    describe(1, "cores")  # imports everything
    for host in hosts:
        pid = os.fork()
        if not pid:
            try:
                enter_host(host["files"], host["variables"])
                answer = describe(host["ranks"], host["pinning"])
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            Path(host["answer"]).write_text(json.dumps(answer))
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
