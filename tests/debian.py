"""Debian's packages that some tests need: installed by whoever may."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def install_missing(programs, packages):
    """Why some of these programs are not here, having tried to install them; None if all are."""
    if _are_installed(programs):
        return None
    if os.getuid() != 0:
        return f"not installed, and only root may: {' '.join(packages)}"
    # Tests run two at a time, and apt-get refuses what another one is about.
    with (Path(tempfile.gettempdir()) / "xfbench-tests-apt").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if _are_installed(programs) else _install(packages)


def _are_installed(programs):
    return all(shutil.which(program, path=PATH) for program in programs)


def _install(packages):
    """Why they could not be; None where they are."""
    # At run level 1 Debian's packages start no daemon of their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for arguments in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        process = subprocess.run(
            ["apt-get", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if process.returncode:
            return f"apt-get {arguments[0]} failed: {process.stderr.strip()[-300:]}"
    return None
