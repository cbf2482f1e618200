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
    "Node names in a ReFrame report",
    "pytest-benchmark reports, old and new",
    "Numbers written as texts",
    "Line of a log that cannot be read",
    "Published figures without any measurement",
    # Terminals and processes
    "Process name cut inside a character",
    "Terminal that is not UTF-8",
    # Control groups and mounts
    "cgroup version 2: limit in the group above",
    'cgroup version 1: values that mean "no limit"',
    "cgroup versions 1 and 2 together",
    "White space that is not a separator",
    "File systems of clusters",
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
    # GPUs and processors
    "Driver of 2016",
    '"No devices were found"',
    "Processors that are not x86-64",
    # Data
    "MNIST with folders named like its files",
    "Hidden folder that a notebook left behind",
    "HTML page instead of MNIST",
    "Python version of CIFAR-10",
    "Validation list with CRLF line ends",
    "CMYK images",
    "Which ResNet it is",
    # The command line
    "Unknown strategy",
    "A million threads",
    "A number of steps beyond all limits",
    "Comparison of two frameworks in the example",
    # Data sets and their readers
    "Resuming from another data set",
    "Two file systems of one kind",
    "Lustre files with different stripe counts",
    "Orders of two seeds",
    "Images in other formats and in nested folders",
    "Validation sets by their usual names",
    "Record files in the order of their classes",
    "Another decoder in the framework's Python",
    "Labels of lists and of folders",
    "Images beyond the first 500",
    "Labels that begin at 1",
    "Symbolic links inside a source",
    "TFRecord shards of other tools",
    "TFRecord features with other names",
    "RecordIO without index, in parts, with label vectors",
    "Truncated images",
    "Classes without test images",
    # Data sets as other tools leave them
    "LMDB as Caffe's tools leave it",
    "Class folders given to `data convert`",
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
