"""The `xfbench` command that is killed before its n-th change of the disk or start of a process.

python -m tests.faults.points N LOG WORD...   (N 0: not at all; LOG: what and where each was)
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import xfbench
from tests.faults.driver import peaks
from xfbench.cli import main
from xfbench.host import roofline

OURS = str(Path(xfbench.__file__).parent)
CHANGES = {
    *("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod"),
    *("os.truncate", "subprocess.Popen", "os.posix_spawn"),
}
ELSEWHERE = ("/dev/", "/proc/", "/sys/")


def killed(number, log, *words):
    """What starts it."""
    return [sys.executable, "-m", "tests.faults.points", *map(str, (number, log, *words))]


def changes(event, arguments):
    """Whether what is about to happen changes something that outlives this process."""
    if event != "open":
        return event in CHANGES
    path, _, flags = arguments
    written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return bool(written) and not str(path).startswith(ELSEWHERE)


def here():
    """The innermost line of ours."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename.startswith(OURS):
            return f"{Path(frame.filename).relative_to(OURS)}:{frame.name}:{frame.lineno}"
    return ""


def watch(number, log):
    """Count from here on; each goes to `log`, a line of JSON, before it happens."""
    seen = 0
    told = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def hook(event, arguments):
        nonlocal seen
        if changes(event, arguments):
            seen += 1
            os.write(told, f"{json.dumps([event, here()])}\n".encode())
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    roofline._PEAKS |= peaks()
    position, path, *sys.argv[1:] = sys.argv[1:]
    watch(int(position), path)
    main()
