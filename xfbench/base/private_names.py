"""Removal and detection of private names: names of hosts and users in text for other people.

- `make_private_text_redactor` removes names that are known. For example, files of other tools list
  the names of their hosts and users.
- `describe_private_name` finds host names of which only hashes are known. xfbench's records contain
  such hashes. A word is a host name if a record contains the hash of the word.
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
_MAX_HOST_NAME = 253  # characters of a host name


def make_private_text_redactor(extra_names: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces private text with an ellipsis ("…").

    The function replaces:

    - Each name in `extra_names`, and the part of the name before its first dot. Upper and lower
      case are not distinguished. Names and parts with 1 or more than 253 characters are kept.
    - Paths of home folders, such as `/home/USER`.
    - Email addresses.
    - User names and passwords in URLs.
    """
    variants = {variant for name in extra_names for variant in (name, name.partition(".")[0])}
    searchable = [variant for variant in variants if 1 < len(variant) <= _MAX_HOST_NAME]
    alternatives = "|".join(
        map(re.escape, sorted(searchable, key=lambda variant: (-len(variant), variant)))
    )
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", re.IGNORECASE)

    def redact_private_text(text: str) -> str:
        redacted = _HOME_USER.sub(
            _REPLACEMENT, _EMAIL.sub(_REPLACEMENT, _PASSWORD.sub(_REPLACEMENT, text))
        )
        return pattern.sub(_REPLACEMENT, redacted) if alternatives else redacted

    return redact_private_text


def describe_private_name(text: str, host_hashes: Collection[str]) -> str | None:
    """Describe one private name in a text, or return None if the text has none.

    Home folders are searched first, then email addresses, then host names. A word is a host name
    if `host_hashes` contains the `host_hash` of the word or of a part of the word.
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
    """Return the hash of a host name as a record's `machine.hostname_hash` has it."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
