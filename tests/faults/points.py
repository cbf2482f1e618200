"""The `xfbench` command, killed before its n-th disk change or process start.

python -m tests.faults.points N LOG ARGUMENT...

If N is 0, the command is not killed. LOG receives the event and source position of each change.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import xfbench
from tests.fake_peaks import build_peaks
from xfbench.cli import main
from xfbench.host import roofline

PACKAGE_FOLDER = str(Path(xfbench.__file__).parent)
CHANGES = {
    *("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod"),
    *("os.truncate", "subprocess.Popen", "os.posix_spawn"),
}
SYSTEM_FOLDERS = ("/dev/", "/proc/", "/sys/")


def build_command(number, log, *arguments):
    """Return the command line that starts this module."""
    return [sys.executable, "-m", "tests.faults.points", *map(str, (number, log, *arguments))]


def is_change(event, arguments):
    """Return whether an audit event changes the disk or starts a process."""
    if event != "open":
        return event in CHANGES
    path, _, flags = arguments
    is_written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return bool(is_written) and not str(path).startswith(SYSTEM_FOLDERS)


def source_position():
    """Return the innermost source line of xfbench on the stack."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename.startswith(PACKAGE_FOLDER):
            return f"{Path(frame.filename).relative_to(PACKAGE_FOLDER)}:{frame.name}:{frame.lineno}"
    return ""


def kill_at(number, log):
    """Kill this process before change `number`; write each change to `log` as a line of JSON."""
    count = 0
    log_file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def hook(event, arguments):
        nonlocal count
        if is_change(event, arguments):
            count += 1
            os.write(log_file, f"{json.dumps([event, source_position()])}\n".encode())
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    roofline._PEAKS |= build_peaks()
    position, path, *sys.argv[1:] = sys.argv[1:]
    kill_at(int(position), path)
    main()
