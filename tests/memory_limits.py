"""Commands that have little memory, whatever they start, by a control group of their own."""

import contextlib
import uuid
from pathlib import Path

import pytest

from tests.remaining_processes import wait_for

_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limit_memory(max_bytes):
    """A function: the command line with which another one has so many bytes; skips without."""
    parent, limit_file = _ROOT / "memory", "memory.limit_in_bytes"
    if not parent.is_dir():
        parent, limit_file = _ROOT, "memory.max"
    group = parent / f"xfbench-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of one's own: {error.strerror}")
    try:
        if not (group / limit_file).exists():
            pytest.skip("memory of a control group cannot be limited here")
        (group / limit_file).write_text(str(max_bytes))
        join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        yield lambda argv: ["sh", "-c", join, str(group), *map(str, argv)]
        wait_for(lambda: not (group / "cgroup.procs").read_text().split())
    finally:
        group.rmdir()
