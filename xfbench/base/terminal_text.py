"""Makes text from records and other programs safe to show.

It escapes invisible characters, characters that change the reading direction, and characters that
are invalid in documents, and it limits the length. Templates do the escaping for HTML. Messages on
standard error go through `say` because they can contain text from other programs.
"""

from __future__ import annotations

import re
import sys
import textwrap
import unicodedata

FIELD_LENGTH, MAX_LENGTH = 240, 1200

# Format (bidirectional controls, joiners), control, surrogate, private and unassigned characters,
# and separators of lines and paragraphs.
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
    """Return the text with each line made legible."""
    return "\n".join(make_legible(line, max_length) for line in text.split("\n"))


def say(line: str, max_length: int = MAX_LENGTH) -> None:
    """Print progress or a problem on standard error, made legible."""
    print(make_lines_legible(line, max_length), file=sys.stderr)


def split_into_field_lines(text: str, max_length: int = MAX_LENGTH) -> tuple[str, ...]:
    """Return the lines of a text that is longer than a field, cut after `max_length` characters."""
    shortened = text if len(text) <= max_length else f"{text[:max_length]}…"
    return tuple(textwrap.wrap(shortened, FIELD_LENGTH))


def _escape_character(character: str) -> str:
    """Return the character as an escape sequence of Python."""
    return character.encode("unicode_escape").decode("ascii")
