"""Atomic writing of files: a temporary file in the same folder, fsync, rename.

The mode of a new file follows the user's umask. The mode is set on the open temporary file, before
the rename. After the rename, the path may already be another user's file in a shared folder.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from xfbench.base import paths


def write(target: Path, content: bytes | Callable[[IO[bytes]], Any]) -> None:
    """Write `target`, and create its folder if it is missing.

    `content`: the bytes of the file, or a function that writes them to an open file.
    """
    paths.make_folder(target.parent)
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
    """Return the umask of this process.

    `os.umask` would change the umask for a moment, while other threads may create files.
    """
    match = re.search(rb"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_bytes(), re.M)
    return int(match[1], 8) if match else 0o022
