"""What docs/faults.md and docs/security.md say is kept by a test: each of those they name is there.

So is each limit where it is said to be. That a test keeps what is said, only reading it shows.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("faults.md", "security.md")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def defined(path):
    """Names that a module defines; none where there is no such file."""
    if not path.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                found.add(target.id)
    return frozenset(found)


def text(page):
    return (ROOT / "docs" / page).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page):
    found = set(NAMED.findall(text(page)))
    assert len(found) > 10
    missing = {
        f"{file}::{name}"
        for file, name in found
        if name not in defined(ROOT / "tests" / file) | defined(ROOT / file)
    }
    assert missing == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_row_names_what_keeps_it(page):
    for line in text(page).splitlines():
        row = line.startswith("|") and not line.startswith("| ---") and line != "| | |"
        head = line.startswith(("| fault", "| what |", "| statement"))
        if row and not head:
            assert NAMED.search(line) or "| `--" in line, line


def test_a_name_that_is_not_there_is_missed():
    assert "nowhere" not in defined(ROOT / "tests" / "test_faults.py")
    assert "NAMED" in defined(ROOT / "tests" / "test_faults.py")
    assert defined(ROOT / "tests" / "no_such.py") == frozenset()
