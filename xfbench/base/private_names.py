"""Removes names of hosts and users from text for other people, or finds such names in it.

The files of other tools list the names themselves, so the names can be removed. xfbench's records
have only hashes of host names. A word whose hash is in a record is a host name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable

_REPLACEMENT = "…"
_HOME_USER = re.compile(r"(?<![\w.-])/(?:home|Users|users)/+([^\s/\"'<>|:;,)\]}]+)")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?![\w-])")
_PASSWORD = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_WORD = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_MAX_HOST_NAME = 253  # characters of a host's name


def make_redactor(names: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces these names with an ellipsis.

    It also replaces users in paths of home folders, email addresses and passwords in URLs.
    """
    variants = {variant for name in names for variant in (name, name.partition(".")[0])}
    searchable = [variant for variant in variants if 1 < len(variant) <= _MAX_HOST_NAME]
    alternatives = "|".join(
        map(re.escape, sorted(searchable, key=lambda variant: (-len(variant), variant)))
    )
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", re.IGNORECASE)

    def redact(text: str) -> str:
        redacted = _HOME_USER.sub(
            _REPLACEMENT, _EMAIL.sub(_REPLACEMENT, _PASSWORD.sub(_REPLACEMENT, text))
        )
        return pattern.sub(_REPLACEMENT, redacted) if alternatives else redacted

    return redact


def describe_private_name(text: str, host_hashes: Collection[str]) -> str | None:
    """Describe the first host or user named in a text; None if there is none.

    `hosts` are the hashes of host names (`host_hash`).
    """
    if match := _HOME_USER.search(text):
        return f"the home folder of {match[1]}"
    if match := _EMAIL.search(text):
        return f"the address {match[0]}"
    for word in dict.fromkeys(_WORD.findall(text)):
        candidates = (word, word.partition(".")[0], *word.split("_"))
        for candidate in candidates:
            if len(candidate) <= _MAX_HOST_NAME and host_hash(candidate) in host_hashes:
                return f"the host {candidate}"
    return None


def host_hash(name: str) -> str:
    """Return the hash of a host name, as in a record's `machine.hostname_hash`."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
