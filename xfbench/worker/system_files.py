"""Reads of the small files in which the system describes itself, such as those in /proc."""

from __future__ import annotations

from pathlib import Path


def read_system_file(path: Path) -> str | None:
    """Return the text of a file without surrounding white space. None if it is not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
