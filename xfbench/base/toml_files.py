"""Reading of TOML files that users write, such as experiments, sites and adapters."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from xfbench.base import safe_read
from xfbench.base.errors import UsageError

MAX_BYTES = 2**20  # more than a person writes


def read_text_and_content(file: Path) -> tuple[str, dict[str, Any]]:
    """Return (text, parsed content) of a TOML file.

    Raises UsageError if the file cannot be read, is longer than `MAX_BYTES`, or is invalid.
    """
    try:
        text = safe_read.read_bytes(file, MAX_BYTES, follow_link=True).decode()
        return text, tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except RecursionError as error:
        raise UsageError(f"{file}: it is nested too deeply") from error
    except ValueError as error:  # invalid TOML or UTF-8, a huge number, or too long
        raise UsageError(f"{file}: {error}") from error
