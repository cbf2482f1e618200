"""Limit the memory of commands and their descendants with a control group."""

import contextlib
import uuid
from pathlib import Path

import pytest

from tests.remaining_processes import wait_for

_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limit_memory(max_bytes):
    """Yield a function that turns a command into one that can use at most `max_bytes`.

    The test is skipped if control groups cannot be made.
    """
    parent, limit_file = _ROOT / "memory", "memory.limit_in_bytes"
    if not parent.is_dir():
        parent, limit_file = _ROOT, "memory.max"
    group = parent / f"xfbench-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        if not (group / limit_file).exists():
            pytest.skip("memory of a control group cannot be limited here")
        (group / limit_file).write_text(str(max_bytes))
        join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        yield lambda argv: ["sh", "-c", join, str(group), *map(str, argv)]
        wait_for(lambda: not (group / "cgroup.procs").read_text().split())
    finally:
        group.rmdir()
