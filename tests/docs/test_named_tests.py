"""The tests and limits that docs/faults.md and docs/security.md name exist.

Whether such a test checks what the page says, only a reader can tell.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.commands import list_items

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


def entries_without_tests(text):
    """Return the entries of lists of tests, and of tables of limits, that name no test or option.

    A list of tests is one in which an item has "Tests:".
    """
    entries = []
    for block in re.findall(r"(?:^- .*\n(?:  .*\n)*)+", text, re.MULTILINE):
        items = list_items(block)
        if any("Tests:" in item for item in items):
            entries += items
    for table in re.findall(r"\| option, or where \|\n\| ---.*\n((?:\|.*\n)+)", text):
        entries += [row for row in table.splitlines() if "| `--" not in row]
    return [entry for entry in entries if not TEST_REFERENCE.search(entry)]


@pytest.mark.parametrize("page", PAGES)
def test_every_entry_names_a_test(page):
    assert entries_without_tests(read_page(page)) == []


def test_every_row_of_the_table_that_promises_something_has_a_test():
    text = read_page("docs/security.md")
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \| [^|]+ \|$", text, re.M)
    promised = {int(number) for number, remedy in rows if remedy != "–"}
    tested = {
        int(number)
        for listed in re.findall(r"^- Rows? ([\d, ]+):", text, re.M)
        for number in listed.split(", ")
    }
    assert len(promised) > 20 and promised <= tested


def test_entry_without_a_test_is_reported():
    text = "- a. Tests:\n  `test_a.py::test_a`.\n- b.\n\n- c\n"
    assert entries_without_tests(text) == ["b."]
    table = "| what | limit | option, or where |\n| --- | --- | --- |\n| a | 1 | `--a` |\n"
    assert entries_without_tests(table + "| b | 2 | – |\n") == ["| b | 2 | – |"]


def test_undefined_name_and_missing_file_are_detected():
    assert "nowhere" not in defined_names(Path(__file__))
    assert "TEST_REFERENCE" in defined_names(Path(__file__))
    assert defined_names(ROOT / "tests" / "no_such.py") == frozenset()
