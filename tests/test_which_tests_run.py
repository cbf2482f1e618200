"""Which tests run depends on markers and installed packages, never on the date."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import debian

ROOT = Path(__file__).parents[1]
DATES = ("2026-12-31 23:59:50", "2028-02-29 12:00:00", "2031-06-15 04:30:00")
# Functions that return the date or the time of day; the second kind only without a time argument.
READ_CLOCK = {"now", "utcnow", "today", "time", "time_ns"}
READ_CLOCK_BY_DEFAULT = {"gmtime": 1, "localtime": 1, "ctime": 1, "strftime": 2}
CLOCK_MODULES = {"time", "datetime", "date", "dt"}
LIST_TESTS = """
import json, sys, pytest

class Collector:
    def pytest_collection_finish(self, session):
        self.tests = {
            item.nodeid: sorted(m.name for m in item.iter_markers() if m.name in MARKERS)
            for item in session.items
        }

MARKERS = ("deep", "long", "alone")
collector = Collector()
status = pytest.main(
    ["--collect-only", "-qq", "-p", "no:cacheprovider", "-m", "not long", "tests",
     "xfbench/benchmarks"],
    plugins=[collector],
)
json.dump(collector.tests, open(sys.argv[1], "w"))
sys.exit(status)
"""


def list_collected_tests(date, file):
    """Return the tests of `make test` and `make test-deep` on that date, with their markers."""
    subprocess.run(
        ["faketime", date, sys.executable, "-B", "-c", LIST_TESTS, file],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=300,
    )
    return json.loads(file.read_text())


@pytest.mark.deep
def test_three_dates_collect_the_same_tests(tmp_path):
    if reason := debian.install_missing(["faketime"], ["faketime"]):
        debian.skip_test(reason)
    first, second, third = [
        list_collected_tests(date, tmp_path / f"{number}.json") for number, date in enumerate(DATES)
    ]
    assert first == second == third
    assert len(first) > 1000
    assert {"deep"} in map(set, first.values()) and [] in first.values()


def list_clock_reads(source):
    """Return the lines of a module that read the date or the time of day."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and _last_name(node.func.value) in CLOCK_MODULES
        and (
            node.func.attr in READ_CLOCK
            or len(node.args) < READ_CLOCK_BY_DEFAULT.get(node.func.attr, 0)
        )
    ] + [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        and node.module == "time"
        and {alias.name for alias in node.names} & (READ_CLOCK | {*READ_CLOCK_BY_DEFAULT})
    ]


def _last_name(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def test_no_test_reads_the_date():
    files = ROOT.glob("tests/**/*.py")
    assert {
        str(file): lines for file in files if (lines := list_clock_reads(file.read_text()))
    } == {}


@pytest.mark.parametrize(
    "source",
    [
        "import datetime\nday = datetime.date.today().toordinal() % 3",
        "from datetime import datetime\nif datetime.now().weekday(): pass",
        "from datetime import date\ndate.today()",
        "import time\nold = time.time() - 100",
        "import time\ntime.gmtime()",
        "import time\ntime.strftime('%d')",
        "from time import time\ntime()",
    ],
)
def test_reading_the_date_is_refused(source):
    assert list_clock_reads(source) == [2] or list_clock_reads(source) == [1]


@pytest.mark.parametrize("source", ["import time\ntime.gmtime(0)", "import time\ntime.monotonic()"])
def test_passing_a_time_or_measuring_one_is_allowed(source):
    assert list_clock_reads(source) == []


@pytest.mark.parametrize(
    ("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_missing_packages_skip_a_test_or_fail_it_if_required(monkeypatch, required, outcome):
    monkeypatch.setenv("REQUIRE_TEST_PACKAGES", required)
    # Both are caught here: a skip that is not caught would skip this test.
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception)) as raised:
        debian.skip_test("no such package")
    assert raised.type is outcome
