"""Debian's packages that some tests need: installed by whoever may."""

import os
import shutil
import subprocess

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def missing(programs, packages):
    """Why some of these programs are not here, having tried to install them; None if all are."""
    if all(shutil.which(program, path=PATH) for program in programs):
        return None
    if os.getuid() != 0:
        return f"not installed, and only root may: {' '.join(packages)}"
    # At run level 1 Debian's packages start no daemon of their own.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(
            ["apt-get", *words], env=quiet, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            return f"apt-get {words[0]} failed: {done.stderr.strip()[-300:]}"
    return None
