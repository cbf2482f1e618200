"""Reads of the small files in which the system describes itself, such as those in /proc."""

from __future__ import annotations

import os
from pathlib import Path


def read_system_file(path: Path) -> str | None:
    """Return the text of a file without surrounding white space. None if it is not readable.

    Bytes that are not UTF-8 are replaced, for example half a character of a process name.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def replace_undecodable(text: str) -> str:
    """Return a name of the operating system, such as a path, as text that any file can hold.

    Python represents bytes that it cannot decode as lone surrogates, which UTF-8 cannot encode.
    """
    return os.fsencode(text).decode("utf-8", "replace")
