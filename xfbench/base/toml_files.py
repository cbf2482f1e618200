"""Reads the TOML files that a person writes: experiments, sites, adapters. They may be anything."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from xfbench.base import safe_read
from xfbench.base.errors import UsageError

MAX_BYTES = 2**20  # bytes: what a person writes is shorter


def read(file: Path) -> tuple[str, dict[str, Any]]:
    """A file's text and what it says. Raises UsageError, with the line where there is one."""
    try:
        text = safe_read.read_bytes(file, MAX_BYTES, follow_link=True).decode()
        return text, tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except RecursionError as error:
        raise UsageError(f"{file}: it is nested too deeply") from error
    except ValueError as error:  # no TOML, no UTF-8, a number of thousands of digits, too long
        raise UsageError(f"{file}: {error}") from error
