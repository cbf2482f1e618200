"""Tests of which tests are run on a mutation, and of two verdicts."""

import pytest

from tests.mutants import drawing, trying
from tests.mutants.drawing import ROOT

WORKER = ROOT / "tests/worker"


def test_mirrored_tests_come_with_the_likeliest_first():
    tests = trying.list_tests("xfbench/worker/steady.py")
    assert tests[0] == "tests/worker/test_steady.py"
    assert set(tests) >= {f"tests/worker/{file.name}" for file in WORKER.glob("test_*.py")}
    assert not any(test.startswith("tests/rendering/report/") for test in tests)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("change", "status"),
    [("candidates = list(choices)", "caught"), ("_MAX_LISTED, _NEAREST = 51, 8", "survived")],
)
def test_a_mutation_is_caught_if_a_test_fails(change, status):
    if reason := trying.find_obstacle():
        pytest.skip(reason)
    source = (ROOT / "xfbench/base/errors.py").read_text()
    candidates = drawing.list_mutations("xfbench/base/errors.py")
    mutation = next(candidate for candidate in candidates if change in candidate.after)
    verdict = trying.try_mutation(mutation, [[*trying.PYTEST, "tests/base/test_errors.py"]])
    assert verdict.status == status
    assert verdict.test.startswith("tests/base/test_errors.py::" if status == "caught" else "")
    assert (ROOT / "xfbench/base/errors.py").read_text() == source
