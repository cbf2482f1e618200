"""What a record says, made fit to be looked at: text that does nothing and hides nothing.

Escaping for HTML is the template's business. Here is what escaping leaves: characters that
cannot be seen, that turn the reading direction, or that no document may have, and length. What
is told on standard error goes through `say`, others' words being in it.
"""

from __future__ import annotations

import re
import sys
import textwrap
import unicodedata

FIELD_LENGTH, MAX_LENGTH = 240, 1200

# Format (bidirectional controls, joiners), control, surrogate, private, unassigned characters,
# and separators of lines and paragraphs: none of them is anything to look at.
_INVISIBLE = ("Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp")
_PRINTABLE_ASCII = re.compile(r"[ -~]*")
_MAX_MARKS = 3


def make_legible(text: str, max_length: int = FIELD_LENGTH) -> str:
    """Return the text with invisible characters escaped, cut after `max_length` characters.

    Only the first three combining marks of a letter are kept.
    """
    shortened = text[:max_length]
    if not _PRINTABLE_ASCII.fullmatch(shortened):
        characters, marks = [], 0
        for character in shortened:
            category = unicodedata.category(character)
            marks = marks + 1 if category.startswith("M") else 0
            if category in _INVISIBLE:
                characters.append(_escape_character(character))
            elif marks <= _MAX_MARKS:
                characters.append(character)
        shortened = "".join(characters)
    return shortened if len(text) <= max_length else f"{shortened}… ({len(text):,} characters)"


def make_lines_legible(text: str, max_length: int = MAX_LENGTH) -> str:
    """Each line of a text made legible: for a terminal, where others' words are told."""
    return "\n".join(make_legible(line, max_length) for line in text.split("\n"))


def say(line: str, max_length: int = MAX_LENGTH) -> None:
    """Tell on standard error what is done, or wrong: words and file names of others are in it."""
    print(make_lines_legible(line, max_length), file=sys.stderr)


def wrap_field(text: str, max_length: int = MAX_LENGTH) -> tuple[str, ...]:
    """Return the lines of a text that is longer than a field, cut after `max_length` characters."""
    shortened = text if len(text) <= max_length else f"{text[:max_length]}…"
    return tuple(textwrap.wrap(shortened, FIELD_LENGTH))


def _escape_character(character: str) -> str:
    """As Python writes it."""
    return character.encode("unicode_escape").decode("ascii")
