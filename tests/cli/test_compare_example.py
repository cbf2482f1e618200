"""Tests of `xfbench compare` on the example records, some of whose launches have failed."""

from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parents[2] / "docs/example/records.tar.gz"


@pytest.mark.case("Comparison of two frameworks in the example")
def test_example_has_a_verdict_or_a_reason_for_each_pair(run_inline):
    assert run_inline("results", "import", str(ARCHIVE)).returncode == 0
    process = run_inline("compare", "framework=torch", "framework=tensorflow")
    assert process.returncode == 0
    assert "Not compared:" in process.stdout and "no such cell in" in process.stdout
    assert "defect" not in process.stderr
    of_all = run_inline("compare", "--self")
    assert of_all.returncode == 0
    without_sides = run_inline("compare")
    assert without_sides.returncode == 2
    assert "compare needs two sides, or --self" in without_sides.stderr
