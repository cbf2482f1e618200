"""Private names in documents of other tools.

`collect_private_names` finds the names that a document states, and `make_private_text_redactor`
removes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from xfbench.base.private_names import (
    EMAIL,
    HOME_USER,
    MAX_HOST_NAME,
    NAME_IN_PATH,
    PASSWORD,
    PATH_START,
    REPLACEMENT,
)

# Only these folders are surely named after a user: /workspace/train.py is of no user "train.py".
_OWNED_HOME = re.compile(
    rf"{PATH_START}(?:/+[\w.-]+)*?/+(?:home|homes|Users|users)/+(?:[A-Za-z]/+)?({NAME_IN_PATH})"
)
_MAX_SEARCHED = 2**16  # characters of a text
_MIN_LETTERS = 2  # of names whose digits may vary
# Also "000[12,13]", which is one number of each host.
_DIGITS = re.compile(r"(?:\d|\[[\d,\s-]*\])+")
_DIGITS_PATTERN = rf"(?<!\d){_DIGITS.pattern}"
_LETTER_OR_DIGIT = re.compile("[A-Za-z0-9]")
_LISTED_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:\[[\d,\s-]*\][A-Za-z0-9_.-]*)*")
_PARAMETER = re.compile(r"(?<![\w.$-])([A-Za-z_$][\w.$-]*)=(\S+)")
_KEY_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_KEYS_OF_NAMES = {
    *("fqdn", "host", "hosts", "hostlist", "hostname", "hostnames"),
    *("nid", "nids", "node", "nodes", "nodelist", "nodename", "nodenames", "xname", "xnames"),
    *("login", "logname", "owner", "pocname", "user", "userid", "username", "usernames", "users"),
}
_HARMLESS_WORDS = {
    *("", "all", "any", "default", "false", "host", "localhost", "n/a", "node", "none", "null"),
    *("true", "undefined", "unknown", "user"),
}


def collect_private_names(document: Any) -> set[str]:
    """Return the names of hosts and users in a JSON document.

    Such names are:

    - Text below a key such as `hostname`, `job_nodelist` or `user`, also in arrays.
    - Text after such a key in a string, as in `Test %nid=node7`.
    - Users of home folders.
    """
    names: set[str] = set()
    pending: list[tuple[bool, Any]] = [(False, document)]
    while pending:
        is_private, value = pending.pop()
        if isinstance(value, dict):
            if is_private:
                names.update(*map(_split_names, value))
            pending += [
                (is_private or _is_key_of_names(key), child) for key, child in value.items()
            ]
        elif isinstance(value, list):
            pending += [(is_private, child) for child in value]
        elif isinstance(value, str):
            text = value[:_MAX_SEARCHED]
            names.update(_OWNED_HOME.findall(text))
            for key, words in _PARAMETER.findall(text):
                if _is_key_of_names(key):
                    names |= _split_names(words)
            if is_private:
                names |= {text.strip()} | _split_names(text)
    return {name for name in names if name.lower() not in _HARMLESS_WORDS and not name.isdecimal()}


def _is_key_of_names(key: str) -> bool:
    words = [word.lower() for word in _KEY_WORD.findall(key)]
    return bool({*words[-1:], "".join(words[-2:])} & _KEYS_OF_NAMES)


def _split_names(text: str) -> set[str]:
    """Return the names in a list such as `node[1-3],login1`. Numbers are no names."""
    return {name for name in _LISTED_NAME.findall(text) if re.search("[A-Za-z]", name)}


def make_private_text_redactor(extra_names: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces private text with an ellipsis ("…").

    The function replaces:

    - Each name in `extra_names`, and the part of the name before its first dot. Upper and lower
      case are not distinguished. Names and parts with 1 or more than 253 characters are kept.
    - Words that differ from such a name only in their digits, such as `node8` and `node[1-3]`, if
      the name has two letters.
    - Paths of home folders, such as `/home/USER` and `/gpfs/home/USER`.
    - Email addresses.
    - User names and passwords in URLs.

    A number after the ellipsis tells names apart: "…1" is the first name that was replaced.
    """
    variants = {
        variant.lower() for name in extra_names for variant in (name, name.partition(".")[0])
    }
    names = {variant for variant in variants if 1 < len(variant) <= MAX_HOST_NAME}
    digits_vary = {name for name in names if len(re.findall("[a-z]", name)) >= _MIN_LETTERS}
    kinds = {_DIGITS.sub("0", name) for name in digits_vary}
    alternatives = "|".join(
        _DIGITS_PATTERN.join(map(re.escape, _DIGITS.split(name)))
        for name in sorted(kinds | (names - digits_vary), key=lambda name: (-len(name), name))
    )
    pattern = re.compile(rf"(?:{alternatives})(?!\d)", re.IGNORECASE)
    numbers: dict[str, int] = {}

    def number_name(match: re.Match[str]) -> str:
        name = match[0].lower()
        is_word = not _LETTER_OR_DIGIT.match(
            match.string[match.start() - 1 : match.start()]
        ) and not _LETTER_OR_DIGIT.match(match.string, match.end())
        is_known = name in names
        is_similar = is_word and _DIGITS.sub("0", name) in kinds
        if not is_similar and not (is_known and (is_word or _is_distinctive(name))):
            return match[0]
        return f"{REPLACEMENT}{numbers.setdefault(name.partition('.')[0], len(numbers) + 1)}"

    def redact_private_text(text: str) -> str:
        redacted = HOME_USER.sub(
            REPLACEMENT, EMAIL.sub(REPLACEMENT, PASSWORD.sub(REPLACEMENT, text))
        )
        return pattern.sub(number_name, redacted) if alternatives else redacted

    return redact_private_text


def _is_distinctive(name: str) -> bool:
    """Return whether a name is also recognised inside a longer word, as in `test_onnode0007`."""
    return len(name) >= 5 and bool(re.search("[a-z]", name) and re.search("[0-9]", name))
