"""Names of hosts and users in what is to be given to others: taken out of it, or found in it.

Who has another tool's file knows from it who is named there, and can take the names out. Of our own
records only hashes of host names are known: a word that has such a hash is the name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable

_SHOWN = "…"
_HOME = re.compile(r"(?<![\w.-])/(?:home|Users|users)/+([^\s/\"'<>|:;,)\]}]+)")
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?![\w-])")
_PASSWORD = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_WORD = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_LONGEST = 253  # characters of a host's name


def hiding(names: Iterable[str]) -> Callable[[str], str]:
    """What puts an ellipsis for each of these names in a text, and for users in home folders."""
    known = {one for name in names for one in (name, name.partition(".")[0])}
    usable = [one for one in known if 1 < len(one) <= _LONGEST]
    words = "|".join(map(re.escape, sorted(usable, key=lambda one: (-len(one), one))))
    named = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE)

    def hidden(text: str) -> str:
        without = _HOME.sub(_SHOWN, _ADDRESS.sub(_SHOWN, _PASSWORD.sub(_SHOWN, text)))
        return named.sub(_SHOWN, without) if words else without

    return hidden


def named(text: str, hosts: Collection[str]) -> str | None:
    """Who is named in a text, in words; None where nobody is seen to be.

    `hosts` are the hashes that machines have of their host's name.
    """
    if found := _HOME.search(text):
        return f"the home folder of {found[1]}"
    if found := _ADDRESS.search(text):
        return f"the address {found[0]}"
    for word in dict.fromkeys(_WORD.findall(text)):
        parts = (word, word.partition(".")[0], *word.split("_"))
        for one in parts:
            if len(one) <= _LONGEST and host_hash(one) in hosts:
                return f"the host {one}"
    return None


def host_hash(name: str) -> str:
    """As a record's `machine.hostname_hash` has it."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
