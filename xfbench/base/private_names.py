"""Names of hosts and users in what is to be given to others: taken out of it, or found in it.

Who has another tool's file knows from it who is named there, and can take the names out. Of our own
records only hashes of host names are known: a word that has such a hash is the name.
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
    """What puts an ellipsis for each of these names in a text, and for users in home folders."""
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


def find_private_name(text: str, hosts: Collection[str]) -> str | None:
    """Who is named in a text, in words; None where nobody is seen to be.

    `hosts` are the hashes that machines have of their host's name.
    """
    if match := _HOME_USER.search(text):
        return f"the home folder of {match[1]}"
    if match := _EMAIL.search(text):
        return f"the address {match[0]}"
    for word in dict.fromkeys(_WORD.findall(text)):
        candidates = (word, word.partition(".")[0], *word.split("_"))
        for candidate in candidates:
            if len(candidate) <= _MAX_HOST_NAME and host_hash(candidate) in hosts:
                return f"the host {candidate}"
    return None


def host_hash(name: str) -> str:
    """As a record's `machine.hostname_hash` has it."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
