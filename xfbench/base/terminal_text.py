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

MOST, LONGEST = 240, 1200

# Format (bidirectional controls, joiners), control, surrogate, private, unassigned characters,
# and separators of lines and paragraphs: none of them is anything to look at.
_UNSEEN = ("Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp")
_PLAIN = re.compile(r"[ -~]*")
_STACKED = 3


def legible(value: str, most: int = MOST) -> str:
    """The string with what cannot be seen written as its code, cut after `most` characters.

    Of more than three marks that stand on one letter the others are left out.
    """
    cut = value[:most]
    if not _PLAIN.fullmatch(cut):
        shown, marks = [], 0
        for character in cut:
            category = unicodedata.category(character)
            marks = marks + 1 if category.startswith("M") else 0
            if category in _UNSEEN:
                shown.append(_code(character))
            elif marks <= _STACKED:
                shown.append(character)
        cut = "".join(shown)
    return cut if len(value) <= most else f"{cut}… ({len(value):,} characters)"


def legible_lines(value: str, most: int = LONGEST) -> str:
    """Each line of a text made legible: for a terminal, where others' words are told."""
    return "\n".join(legible(line, most) for line in value.split("\n"))


def say(line: str, most: int = LONGEST) -> None:
    """Tell on standard error what is done, or wrong: words and file names of others are in it."""
    print(legible_lines(line, most), file=sys.stderr)


def pieces(value: str, most: int = LONGEST) -> tuple[str, ...]:
    """A text that is longer than what a page shows of a field, cut after `most` characters."""
    cut = value if len(value) <= most else f"{value[:most]}…"
    return tuple(textwrap.wrap(cut, MOST))


def _code(character: str) -> str:
    """As Python writes it."""
    return character.encode("unicode_escape").decode("ascii")
