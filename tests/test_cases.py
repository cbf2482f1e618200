"""Inputs as users meet them: each named case has a test that goes through a real entrance.

`@pytest.mark.case("NAME")` marks the tests of a case. This test fails if a case has lost its tests.
"""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
CASES = [
    # Logs and reports of other tools
    "MLPerf log, version 0.5",
    "MLPerf log, version 0.6",
    "MLPerf log with another name for the clock",
    "Scores of several kinds in one value",
    "Scores of several kinds under one key",
    "Part of an epoch",
    "Samples instead of epochs",
    "Times to train",
    # Terminals and processes
    "Process name cut inside a character",
    "Terminal that is not UTF-8",
    # Locks
    "Locks fail with ENOLCK",
    "Locks fail with ENOSYS",
    # Batch systems
    "Banner before the job number",
    "Plugin's log before the job number",
    "Job number with a cluster name",
    # Modules and MPI
    "Modules that print",
    "Missing module with exit status 0",
    "Process mark that is older than the run",
    "MPI with another name",
    "Host name that resolves to another machine's address",
    # The command line
    "Unknown strategy",
    "A million threads",
    "A number of steps beyond all limits",
    "Comparison of two frameworks in the example",
]


def list_marked_cases(source):
    """Yield the names that `pytest.mark.case` has in the text of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case":
            yield from (argument.value for argument in node.args)


def test_each_case_has_a_test_and_each_marked_case_is_listed():
    sources = [path.read_text() for path in TESTS.rglob("test_*.py")]
    marked = {name for source in sources for name in list_marked_cases(source)}
    assert marked == set(CASES)
    assert len(CASES) == len(set(CASES))
