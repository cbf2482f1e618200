"""Others' words as text that can be looked at, and does nothing."""

import pytest

from xfbench.base.terminal_text import make_legible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("onednn · 2 ×", "onednn · 2 ×"),
        ("名前", "名前"),
        ("a\x00b\x1b[1m\x7f\x9b", "a\\x00b\\x1b[1m\\x7f\\x9b"),
        ("\u202eexe\u2066\u200d\ufeff", "\\u202eexe\\u2066\\u200d\\ufeff"),
        ("a\nb\u2028c", "a\\nb\\u2028c"),
        ("\ud800", "\\ud800"),
        ("e" + "\u0301" * 9, "e" + "\u0301" * 3),
        ("x" * 1000, "x" * 240 + "… (1,000 characters)"),
    ],
)
def test_legible_escapes_control_characters_and_shortens_text(text, shown):
    assert make_legible(text) == shown
