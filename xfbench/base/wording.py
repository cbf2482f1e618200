"""Words of messages."""

from __future__ import annotations


def pluralize(count: int, noun: str) -> str:
    """Return the count and the noun. The noun is in the plural unless the count is 1."""
    suffix = "es" if noun.endswith("nch") else "s"
    return f"{count} {noun}{'' if count == 1 else suffix}"
