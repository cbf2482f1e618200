"""What the README, docs/faults.md and docs/security.md say a test keeps: each they name is there.

So is each limit where it is said to be. That a test keeps what is said, only reading it shows.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": 6, "docs/faults.md": 11, "docs/security.md": 11}  # tests named at least
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
    return (ROOT / page).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_tests_named_on_a_page_exist(page):
    found = set(NAMED.findall(text(page)))
    assert len(found) >= PAGES[page]
    missing = {
        f"{file}::{name}"
        for file, name in found
        if name not in defined(ROOT / "tests" / file) | defined(ROOT / file)
    }
    assert missing == set()


def unkept(lines):
    """Rows of tables with tests, or with limits, that name none and no option."""
    found, kept = [], False
    for above, line in zip(["", *lines], lines, strict=False):
        if line.startswith("| ---"):
            kept = above.endswith(("tests |", "below `tests/` |", "| option, or where |"))
        elif not line.startswith("|"):
            kept = False
        elif kept and not NAMED.search(line) and "| `--" not in line:
            found.append(line)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_table_row_names_a_test(page):
    assert unkept(text(page).splitlines()) == []


def test_row_without_a_test_is_reported():
    table = ["| fault | tests |", "| --- | --- |", "| a | `test_a.py::test_a` |", "| b | – |"]
    assert unkept(table) == ["| b | – |"]
    assert unkept(["| a | b |", "| --- | --- |", "| c | d |"]) == []


def test_undefined_name_and_missing_file_are_detected():
    assert "nowhere" not in defined(ROOT / "tests" / "test_faults.py")
    assert "NAMED" in defined(ROOT / "tests" / "test_faults.py")
    assert defined(ROOT / "tests" / "no_such.py") == frozenset()
