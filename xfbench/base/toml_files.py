"""Reads TOML files that users write: experiments, sites, adapters. Their content is not trusted."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from xfbench.base import safe_read
from xfbench.base.errors import UsageError

MAX_BYTES = 2**20  # more than a person writes


def read_text_and_content(file: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text and content. Raises UsageError, with the line if it is known."""
    try:
        text = safe_read.read_bytes(file, MAX_BYTES, follow_link=True).decode()
        return text, tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except RecursionError as error:
        raise UsageError(f"{file}: it is nested too deeply") from error
    except ValueError as error:  # invalid TOML or UTF-8, a huge number, or too long
        raise UsageError(f"{file}: {error}") from error
