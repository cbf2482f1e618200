"""The tests and limits that docs/faults.md and docs/security.md name exist.

Whether such a test checks what the page says, only a reader can tell.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    "docs/faults.md": 11,
    "docs/security.md": 11,
}  # least number of tests named
TEST_REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def defined_names(path):
    """Return the names that a module defines; none if the file does not exist."""
    if not path.is_file():
        return frozenset()
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                names.add(target.id)
    return frozenset(names)


def read_page(page):
    return (ROOT / page).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_tests_named_on_a_page_exist(page):
    references = set(TEST_REFERENCE.findall(read_page(page)))
    assert len(references) >= PAGES[page]
    missing = {
        f"{file}::{name}"
        for file, name in references
        if name not in defined_names(ROOT / "tests" / file) | defined_names(ROOT / file)
    }
    assert missing == set()


def rows_without_tests(lines):
    """Return the rows of tables of tests or limits that name no test and no option."""
    rows, in_test_table = [], False
    for previous_line, line in zip(["", *lines], lines, strict=False):
        if line.startswith("| ---"):
            in_test_table = previous_line.endswith(
                ("tests |", "below `tests/` |", "| option, or where |")
            )
        elif not line.startswith("|"):
            in_test_table = False
        elif in_test_table and not TEST_REFERENCE.search(line) and "| `--" not in line:
            rows.append(line)
    return rows


@pytest.mark.parametrize("page", PAGES)
def test_every_table_row_names_a_test(page):
    assert rows_without_tests(read_page(page).splitlines()) == []


def test_row_without_a_test_is_reported():
    table = ["| fault | tests |", "| --- | --- |", "| a | `test_a.py::test_a` |", "| b | – |"]
    assert rows_without_tests(table) == ["| b | – |"]
    assert rows_without_tests(["| a | b |", "| --- | --- |", "| c | d |"]) == []


def test_undefined_name_and_missing_file_are_detected():
    assert "nowhere" not in defined_names(Path(__file__))
    assert "TEST_REFERENCE" in defined_names(Path(__file__))
    assert defined_names(ROOT / "tests" / "no_such.py") == frozenset()
