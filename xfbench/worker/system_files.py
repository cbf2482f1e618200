"""Small files in which the system describes itself."""

from __future__ import annotations

from pathlib import Path


def read_system_file(path: Path) -> str | None:
    """Return the file's text. None if it is not readable."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
