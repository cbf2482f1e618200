"""Commands that have little memory, whatever they start, by a control group of their own."""

import contextlib
import uuid
from pathlib import Path

import pytest

from tests.remaining_processes import until

_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def memory(count):
    """A function: the command line with which another one has so many bytes; skips without."""
    top, limit = _ROOT / "memory", "memory.limit_in_bytes"
    if not top.is_dir():
        top, limit = _ROOT, "memory.max"
    folder = top / f"xfbench-test-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of one's own: {error.strerror}")
    try:
        if not (folder / limit).exists():
            pytest.skip("memory of a control group cannot be limited here")
        (folder / limit).write_text(str(count))
        join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        yield lambda argv: ["sh", "-c", join, str(folder), *map(str, argv)]
        until(lambda: not (folder / "cgroup.procs").read_text().split())
    finally:
        folder.rmdir()
