"""Small files in which the system tells of itself."""

from __future__ import annotations

from pathlib import Path


def read_system_file(path: Path) -> str | None:
    """Such a file's text; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
