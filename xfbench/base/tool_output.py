"""Finds the answer in what another program prints.

Sites and plugins add banners and log lines before and after an answer. So no reader may take a
line for its place alone: these functions take the lines that have the form of the answer.
"""

from __future__ import annotations

import json
import re
from typing import Any

_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


def remove_colours(text: str) -> str:
    """Return `text` without the colours that some programs print to files, too."""
    return _COLOUR.sub("", text)


def find_matching_lines(text: str, form: str) -> list[str]:
    """Return the lines of `text`, without outer white space, that are `form` from end to end.

    Colours are removed.
    """
    lines = (line.strip() for line in re.split(r"[\r\n]+", remove_colours(text)))
    return [line for line in lines if re.fullmatch(form, line)]


def read_json_object(text: str) -> dict[str, Any]:
    """Return the last line of `text` that is a JSON object. Raises ValueError if there is none."""
    for line in reversed(find_matching_lines(text, r"\{.*\}")):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            return document
    raise ValueError(f"no answer in {quote_output(text)}")


def parse_variables(listing: str) -> dict[str, str]:
    """Return the variables that `env -0` printed. An entry whose name is no name is left out."""
    entries = (entry.partition("=") for entry in listing.split("\0"))
    return {
        name: value for name, equals, value in entries if equals and re.fullmatch(r"[^\s=]+", name)
    }


def quote_output(text: str) -> str:
    """Return the first 300 characters of `text` in quotes, for a message in one line."""
    words = " ".join(text.split())
    return repr(words if len(words) <= 300 else f"{words[:300]} …")
