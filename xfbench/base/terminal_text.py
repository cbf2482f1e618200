"""Functions that make text from records and other programs safe to show.

They limit the length, and escape these characters:

- Invisible characters.
- Characters that change the reading direction.
- Characters that are invalid in documents.

Templates escape HTML. `say` prints messages on standard error, because messages may contain text
from other programs.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from contextlib import suppress
from typing import TextIO

FIELD_LENGTH, MAX_LENGTH = 240, 1200

# Unicode categories: format (bidirectional controls, joiners), control, surrogate, private and
# unassigned characters, line separators and paragraph separators.
_INVISIBLE = ("Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp")
_PRINTABLE_ASCII = re.compile(r"[ -~]*")
_PRINTABLE_LINES = re.compile(r"[ -~\n]*")
_MAX_MARKS = 3
_STYLE_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
_STYLE = re.compile(rf"\x1b\[(?:0|{'|'.join(map(str, _STYLE_CODES.values()))})m")

# Replacements of characters that an output's encoding lacks. Other accents are left out.
_PLAIN = {
    **dict.fromkeys("–−·‐‑—─━╌╍═╸╺", "-"),
    **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛╔╗╚╝╠╣╦╩╬┡┩╇╞╪╡", "+"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”„", '"'),
    **{"×": "x", "±": "+-", "µ": "u", "μ": "u", "…": "...", "°": " deg", "Σ": "sum", "½": "1/2"},
    **{"→": "->", "∞": "inf", "≤": "<=", "≥": ">=", "✔": "ok", "✘": "failed", "•": "*"},
}
_PLAIN_ERRORS = "xfbench-plain"


def print_in_any_encoding() -> None:
    """Make standard output and standard error replace the characters that their encoding lacks.

    Without this, a table fails with UnicodeEncodeError on a terminal that is not UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_PLAIN_ERRORS)


def make_encodable(text: str, stream: TextIO | None = None) -> str:
    """Return the text with the characters replaced that the encoding of `stream` lacks.

    Tables need this before their layout, because a replacement may be longer.

    - `stream`: None: standard output.
    """
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, _PLAIN_ERRORS).decode(encoding)


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(_make_plain(each) for each in characters), error.end


def _make_plain(character: str) -> str:
    """Return a replacement in ASCII for a character that an encoding lacks."""
    if character in _PLAIN:
        return _PLAIN[character]
    if "\u2800" <= character <= "\u28ff":  # Braille, which spinners use
        return "*"
    parts = unicodedata.normalize("NFKD", character)
    letters = "".join(part for part in parts if not unicodedata.combining(part))
    return letters if letters.isascii() and letters else _escape_character(character)


codecs.register_error(_PLAIN_ERRORS, _replace_unencodable)


def make_legible(text: str, max_length: int = FIELD_LENGTH) -> str:
    """Return the first `max_length` characters of the text, with invisible characters escaped.

    - Only the first three combining marks of a letter are kept.
    - If the text was cut, its full length in characters is added at the end.
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


def make_lines_legible(text: str, max_line_length: int = MAX_LENGTH) -> str:
    """Return the text with `make_legible` applied to each line.

    `max_line_length` is the limit for one line, in characters.
    """
    return "\n".join(make_legible(line, max_line_length) for line in text.split("\n"))


def terminal_width() -> int:
    """Return the width of the terminal in characters. It is 100 if there is no terminal.

    If the environment variable COLUMNS is set, the width is its value.
    """
    return shutil.get_terminal_size((100, 24)).columns


def add_style(text: str, style: str) -> str:
    """Return the text in a style, if standard output is a terminal that shows colours.

    The styles are bold, dim, red, green and yellow. The environment variable NO_COLOR turns all of
    them off, and so does the terminal "dumb".
    """
    has_colours = (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "") not in ("", "dumb")
    )
    if not has_colours:
        return text
    start, end = f"\x1b[{_STYLE_CODES[style]}m", "\x1b[0m"
    return "\n".join(f"{start}{line}{end}" for line in text.split("\n"))


def remove_style(text: str) -> str:
    """Return the text without what `add_style` added."""
    return _STYLE.sub("", text)


def print_legibly(*values: object, sep: str = " ", end: str = "\n", flush: bool = False) -> None:
    """Print values on standard output like `print`, with invisible characters escaped.

    Commands use it instead of `print`. Line ends, tabs and the styles of `add_style` stay.
    """
    text = sep.join(map(str, values))
    if not _PRINTABLE_LINES.fullmatch(text):
        parts = _STYLE.split(text)
        styles = [*_STYLE.findall(text), ""]
        text = "".join(
            _escape_all_invisible(part) + style for part, style in zip(parts, styles, strict=True)
        )
    print(text, end=end, flush=flush)


def _escape_all_invisible(text: str) -> str:
    return "".join(
        _escape_character(character)
        if character not in "\n\t" and unicodedata.category(character) in _INVISIBLE
        else character
        for character in text
    )


def is_interactive() -> bool:
    """Return whether a person can answer a question: input and messages are on a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(line: str, max_line_length: int = MAX_LENGTH) -> None:
    """Print a message on standard error, with `make_legible` applied to each line.

    Print nothing if standard error is closed, because Python would use standard output then. A
    message that cannot be written, because the terminal is gone, does not end the command.
    """
    if sys.stderr is None:
        return
    with suppress(OSError):
        legible = make_lines_legible(line, max_line_length)
        print(make_encodable(legible, sys.stderr), file=sys.stderr)


def shorten_and_wrap_to_field_length(text: str, max_length: int = MAX_LENGTH) -> tuple[str, ...]:
    """Return the first `max_length` characters of the text, in lines of at most `FIELD_LENGTH`."""
    shortened = text if len(text) <= max_length else f"{text[:max_length]}…"
    return tuple(textwrap.wrap(shortened, FIELD_LENGTH))


def _escape_character(invisible_character: str) -> str:
    r"""Return the character as Python writes it in a string literal, for example "\u200b"."""
    return invisible_character.encode("unicode_escape").decode("ascii")
