"""Tests of the mutations that `python -m tests.mutants` draws."""

import ast
import difflib

import pytest

from tests.mutants import drawing
from tests.mutants.drawing import ROOT

KINDS = {"comparison", "arithmetic", "and/or", "operand", "not", "guard", "constant", "call"}


@pytest.fixture(scope="module")
def drawn_mutations():
    return drawing.draw()


def mutate(tmp_path, monkeypatch, line):
    """Return the changed lines of all mutations of a file with only this line."""
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    (tmp_path / "module.py").write_text(f"{line}\n")
    return {mutation.after for mutation in drawing.list_mutations("module.py")}


def test_the_same_seed_draws_the_same_mutations(drawn_mutations):
    assert drawing.draw() == drawn_mutations
    assert drawing.draw(seed=drawing.SEED + 1) != drawn_mutations


def test_every_area_has_its_share_of_the_mutations(drawn_mutations):
    areas = [
        sum(mutation.path in drawing.list_files(area) for mutation in drawn_mutations)
        for area in drawing.AREAS
    ]
    assert areas == [10, 5, 3, 2]
    assert len({mutation.path for mutation in drawn_mutations}) == 20


def test_a_mutation_changes_code_in_one_line(drawn_mutations):
    for mutation in drawn_mutations:
        source = (ROOT / mutation.path).read_text()
        compile(mutation.source, mutation.path, "exec")
        assert ast.dump(ast.parse(mutation.source)) != ast.dump(ast.parse(source))
        lines = difflib.ndiff(source.splitlines(), mutation.source.splitlines())
        changes = [line for line in lines if line.startswith(("- ", "+ "))]
        assert [change[2:].strip() for change in changes] == [mutation.before, mutation.after]
        assert source.splitlines()[mutation.line - 1].strip() == mutation.before


def test_adapters_have_every_kind_of_mutation():
    files = drawing.list_files("adapters")
    assert {mutation.kind for file in files for mutation in drawing.list_mutations(file)} == KINDS


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("f(a <= b)", {"f(a < b)"}),
        ("f(a not in b)", {"f(a in b)"}),
        ("f(a is b)", {"f(a is not b)"}),
        ("f(0.025)", {"f(0.05)"}),
        ("f('ü', 7)", {"f('ü', 8)"}),
        ("a += b", {"a -= b"}),
        ("f(a and b)", {"f(a or b)", "f(a)", "f(b)"}),
        (
            "f((a or b) and c)",
            {"f((a and b) and c)", "f((a) and c)", "f((b) and c)", "f((a or b) or c)"},
        ),
        ("f(not a)", {"f(a)"}),
        ("if a: raise b", {"if False: raise b"}),
        ("f(max(a, b))", {"f(min(a, b))"}),
        ("f(sorted(a, key=b))", {"f(list(a))"}),
        ("f(reversed(a))", {"f((a))"}),
    ],
)
def test_a_line_has_these_mutations(line, changes, tmp_path, monkeypatch):
    assert mutate(tmp_path, monkeypatch, line) == changes


@pytest.mark.parametrize(
    "line",
    [
        "'1 < 2'",
        "def f(a: Literal[1]) -> Literal[2]: pass",
        "f(f'{1}')",
        "f(timeout=1)",
        "_TIMEOUT_SECONDS = 60.0",
        "__version__ = (1, 2)",
        "if __name__ == '__main__': f(1)",
        "f(sys.version_info < (3, 11))",
        "f('a' + b)",
        "f(a, True)",
    ],
)
def test_a_line_that_tests_cannot_depend_on_has_none(line, tmp_path, monkeypatch):
    assert mutate(tmp_path, monkeypatch, line) == set()
