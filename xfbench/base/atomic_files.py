"""Writes a file whole or not at all: a temporary one beside it, fsync, rename.

It has the mode that the user's umask gives a new file, set before it has a name that anybody knows:
in a shared folder nothing is done to what somebody else has put there.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write(target: Path, content: bytes | Callable[[IO[bytes]], Any]) -> None:
    """Write bytes, or let a function write, into `target`; its folder is made where missing."""
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
    """The process's, read without setting it: other threads make files meanwhile."""
    match = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text("ascii"), re.M)
    return int(match[1], 8) if match else 0o022
