"""Others' words as text that can be looked at, and does nothing."""

import io
import sys

import pytest

from xfbench.base.terminal_text import (
    FIELD_LENGTH,
    make_legible,
    print_in_any_encoding,
    print_legibly,
    shorten_and_wrap_to_field_length,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("onednn · 2 ×", "onednn · 2 ×"),
        ("名前", "名前"),
        ("a\x00b\x1b[1m\x7f\x9b", "a\\x00b\\x1b[1m\\x7f\\x9b"),
        ("\u202eexe\u2066\u200d\ufeff", "\\u202eexe\\u2066\\u200d\\ufeff"),
        ("a\nb\u2028c\u2029", "a\\nb\\u2028c\\u2029"),
        ("\ue000 \u0378", "\\ue000 \\u0378"),
        ("\ud800", "\\ud800"),
        ("\x1b[2J\r", "\\x1b[2J\\r"),
        ("e" + "\u0301" * 9, "e" + "\u0301" * 3),
        ("x" * 1000, "x" * 240 + "… (1,000 characters)"),
    ],
)
def test_legible_escapes_control_characters_and_shortens_text(text, shown):
    assert make_legible(text) == shown


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("\x1b[1mbold\x1b[0m\x1b[31m", "\x1b[1mbold\x1b[0m\x1b[31m"),
        ("a\nb\tc ×", "a\nb\tc ×"),
        ("\x1b]0;title\x07 \x1b[2J\x1b[8m", "\\x1b]0;title\\x07 \\x1b[2J\\x1b[8m"),
        ("\x9b2J \u202e \r", "\\x9b2J \\u202e \\r"),
        ("\x1b[2J", "\\x1b[2J"),
        ("w" * 5000, "w" * 5000),
    ],
)
def test_printing_escapes_all_but_lines_and_styles(capsys, text, printed):
    print_legibly(text, 1, sep=" - ")
    assert capsys.readouterr().out == f"{printed} - 1\n"


@pytest.mark.parametrize(
    ("encoding", "text", "printed"),
    [
        ("ascii", "a · b – c × ± 3 µs…", "a - b - c x +- 3 us..."),
        ("ascii", "┏━┓│ ✔ ✘ ⠋", "+-+| ok failed *"),
        ("ascii", "größe 名 \udcf6", "gro\\xdfe \\u540d \\udcf6"),
        ("latin-1", "a · b – c × ± 3 µs…", "a · b - c × ± 3 µs..."),
        ("utf-8", "a · b – c \udcf6", "a · b – c \\udcf6"),
    ],
)
def test_output_replaces_characters_that_its_encoding_lacks(monkeypatch, encoding, text, printed):
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding=encoding))
    print_in_any_encoding()
    print(text, end="", flush=True)
    assert content.getvalue().decode(encoding) == printed


def test_long_text_is_shortened_and_wrapped():
    lines = shorten_and_wrap_to_field_length("word " * 10**5, 1000)
    assert max(map(len, lines)) <= FIELD_LENGTH
    assert sum(map(len, lines)) <= 1000 and lines[-1].endswith("…")
