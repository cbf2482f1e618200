"""Writes files atomically: a temporary file in the same folder, fsync, rename.

The mode follows the user's umask. It is set on the open file before the rename, so that in a shared
folder no file of another user changes.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write(target: Path, content: bytes | Callable[[IO[bytes]], Any]) -> None:
    """Write `target` from bytes or with a function; create its folder if it is missing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~umask())
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def umask() -> int:
    """Return the process's umask without setting it, because other threads may create files."""
    match = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text("ascii"), re.M)
    return int(match[1], 8) if match else 0o022
