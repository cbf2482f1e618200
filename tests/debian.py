"""Install Debian packages that some tests need; this needs root."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def install_missing(programs, packages, tex_files=()):
    """Install missing programs and files of TeX.

    Return why some are still missing, None if all are there.
    """
    if _are_installed(programs, tex_files):
        return None
    if os.getuid() != 0:
        return f"not installed, and only root can install them: {' '.join(packages)}"
    # Tests run in parallel, and apt-get fails while another one runs.
    with (Path(tempfile.gettempdir()) / "xfbench-tests-apt").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if _are_installed(programs, tex_files) else _install(packages)


def skip_test(reason):
    """Skip the test because packages are missing. Fail it if all packages are required."""
    if os.environ.get("REQUIRE_TEST_PACKAGES"):
        pytest.fail(f"this test needs missing packages: {reason}")
    pytest.skip(reason)


def _are_installed(programs, tex_files):
    return all(shutil.which(program, path=PATH) for program in programs) and all(
        subprocess.run(["kpsewhich", name], capture_output=True, check=False).returncode == 0
        for name in tex_files
    )


def _install(packages):
    """Install the packages; return the error, None if there is none."""
    # At run level 1 Debian's packages start no daemon.
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
            timeout=900,
            check=False,
        )
        if process.returncode:
            return f"apt-get {arguments[0]} failed: {process.stderr.strip()[-300:]}"
    return None
