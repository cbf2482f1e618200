"""Functions that parse quantities as people type them: numbers, shares, durations and sizes."""

from __future__ import annotations

import re

_DURATION_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE_UNITS = {"": 1, "B": 1}
_SIZE_UNITS |= {f"{letter}B": 1000**n for n, letter in enumerate("kMG", 1)}
_SIZE_UNITS |= {f"{letter}iB": 1024**n for n, letter in enumerate("KMG", 1)}


def parse_whole_number(text: str) -> int:
    """Parse a whole number. Raises ValueError."""
    if not re.fullmatch(r"-?[0-9]+", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def parse_number(text: str) -> float:
    """Parse a number. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def parse_share(text: str) -> float:
    """Parse a share between 0 and 1, written as "2%" or "0.02". Raises ValueError."""
    share = parse_number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if 1 <= share <= 100 and not text.endswith("%"):
        raise ValueError(f"{text!r} is more than 100 %: write {share:g}% or {share / 100:g}")
    if not 0 < share < 1:
        raise ValueError(f"{text!r} is not a share between 0 and 100 %, such as 2% or 0.02")
    return share


def parse_duration(text: str, *, may_be_zero: bool = False) -> float:
    """Parse a duration in seconds: "90", "500ms", "90s", "10m" or "1.5h".

    Raises ValueError if the text is no duration, or if it is zero and `may_be_zero` is false.
    """
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]+)?) ?([a-z]*)", text)
    if not match or match[2] not in _DURATION_UNITS:
        raise ValueError(f"{text!r} is not a duration such as 90s, 10m or 1.5h")
    seconds = float(match[1]) * _DURATION_UNITS[match[2]]
    if not seconds and not may_be_zero:
        raise ValueError(f"{text!r} must be more than zero")
    return seconds


def parse_named_values(text: str) -> dict[str, str]:
    """Parse values by name, from text such as "servers=2,bucket_size=1MB". Raises ValueError."""
    value_by_name: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not name or not equals or not value or name in value_by_name:
            raise ValueError("expected NAME=VALUE,... such as servers=2, each name once")
        value_by_name[name] = value
    return value_by_name


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 1MB, 512KiB, 1.5GB or 4096.

    Raises ValueError if the text is not a size, or if the size is less than a byte.
    """
    match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]+)?) ?([A-Za-z]*)", text)
    if not match or match[2] not in _SIZE_UNITS or not int(float(match[1]) * _SIZE_UNITS[match[2]]):
        raise ValueError("give a size in bytes, for example 1MB, 512KiB or 8GB")
    return int(float(match[1]) * _SIZE_UNITS[match[2]])
