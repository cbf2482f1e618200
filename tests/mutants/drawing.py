"""Draw mutations of the source, one changed line each; a seed always gives the same ones."""

import ast
import fnmatch
import random
import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEED = 2026
# Mutations of 20 by area. An area is a folder without the folders of other areas.
AREAS = {"xfbench": 10, "xfbench/worker": 5, "adapters": 3, "launchers": 2}
EXCLUDED = (
    "xfbench/benchmarks/*",  # measures; only tests marked `alone` run it
    "xfbench/rendering/published_page.py",  # prints a page of the documentation
    "adapters/ipex/*",  # only `make test-all` creates its environment
    "adapters/*/device.py",  # chooses a GPU
)
# No test should depend on time limits, buffer sizes or the layout of JSON.
UNTESTED_ARGUMENTS = {"timeout", "time_limit", "indent", "maxsize"}
UNTESTED_NAMES = re.compile(r"timeout|seconds|pause|^__", re.IGNORECASE)
OPERATORS = {
    **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")},
    **{ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")},
    **{ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is")},
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*")},
    **{ast.And: ("and", "or"), ast.Or: ("or", "and")},
}
SEQUENCES = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)


@dataclass(frozen=True)
class Mutation:
    """One changed line: `before` and `after` are its text, `source` is the whole changed file."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    source: str


class Text:
    """A file's source in bytes, with the positions of the nodes of its syntax tree."""

    def __init__(self, source):
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def begin(self, node):
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node):
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def between(self, first_node, second_node):
        return self.source[self.end(first_node) : self.begin(second_node)].decode()


def draw(seed=SEED, count=20):
    """Return the mutations of a seed: at most one in each file, and a share for each area."""
    mutations = []
    for area, share in AREAS.items():
        generator = random.Random(f"{seed} {area}")
        files = list_files(area)
        generator.shuffle(files)
        picks = (pick(file, generator) for file in files)
        quota = max(1, round(count * share / sum(AREAS.values())))
        mutations += islice(filter(None, picks), quota)
    return mutations


def list_files(area):
    """Return the files of an area, as paths below the checkout."""
    patterns = [*EXCLUDED, *(f"{nested}/*" for nested in AREAS if nested.startswith(f"{area}/"))]
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / area).rglob("*.py"))
    return [file for file in files if not any(fnmatch.fnmatch(file, rule) for rule in patterns)]


def pick(path, generator):
    """Return one mutation of a file, each kind with equal probability; None if it has none."""
    mutations = list_mutations(path)
    while mutations:
        kind = generator.choice(sorted({mutation.kind for mutation in mutations}))
        mutation = generator.choice([mutation for mutation in mutations if mutation.kind == kind])
        if is_change(mutation):
            return mutation
        mutations.remove(mutation)
    return None


def is_change(mutation):
    """Return whether the changed file compiles and has another syntax tree."""
    try:
        compile(mutation.source, mutation.path, "exec")
    except SyntaxError:
        return False
    trees = (ast.parse(text) for text in (mutation.source, (ROOT / mutation.path).read_bytes()))
    return len(set(map(ast.dump, trees))) == 2


def list_mutations(path):
    """Return all mutations of a file; some of them may not compile."""
    text = Text((ROOT / path).read_bytes())
    mutations = []
    for node in walk(ast.parse(text.source)):
        for kind, begin, end, replacement in list_edits(node, text):
            number = bisect_right(text.starts, begin) - 1
            first, last = text.starts[number : number + 2]
            if end <= last:
                changed = text.source[:begin] + replacement.encode() + text.source[end:]
                before = text.source[first:last].decode().strip()
                after = changed[first : last + len(changed) - len(text.source)].decode().strip()
                words = (path, number + 1, kind, before, after)
                mutations.append(Mutation(*words, changed.decode()))
    return mutations


def walk(node):
    """Yield the nodes that tests can depend on."""
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not is_untested(child):
                    yield from walk(child)


def is_untested(node):
    """Return whether no test should depend on this node."""
    if isinstance(node, ast.keyword):
        return node.arg in UNTESTED_ARGUMENTS
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(UNTESTED_NAMES.search(ast.unparse(target)) for target in targets) and isinstance(
            node.value, (ast.Constant, ast.List, ast.Tuple, type(None))
        )
    if isinstance(node, ast.If):  # a block for type checkers or for running the module
        return ast.unparse(node.test).startswith(("TYPE_CHECKING", "__name__"))
    if isinstance(node, ast.Compare):
        return ast.unparse(node.left).startswith("sys.version_info")
    return isinstance(node, ast.JoinedStr)  # its parts have wrong positions before Python 3.12


def list_edits(node, text):
    """Yield (kind, begin, end, replacement) for each change of a node; offsets are in bytes."""
    begin, end = text.begin, text.end
    if isinstance(node, ast.Compare):
        yield from operator_edits("comparison", [node.left, *node.comparators], node.ops, text)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        sides = (
            [node.left, node.right] if isinstance(node, ast.BinOp) else [node.target, node.value]
        )
        yield from operator_edits("arithmetic", sides, [node.op], text)
    elif isinstance(node, ast.BoolOp):
        operators = [node.op] * (len(node.values) - 1)
        yield from operator_edits("and/or", node.values, operators, text)
        for first_operand, second_operand in pairwise(node.values):
            if text.between(first_operand, second_operand).strip() in (
                "and",
                "or",
            ):  # no parentheses, no comment
                yield "operand", begin(first_operand), begin(second_operand), ""
                yield "operand", end(first_operand), end(second_operand), ""
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", begin(node), begin(node) + len("not "), ""
    elif isinstance(node, ast.If):
        exits = isinstance(node.body[0], (ast.Raise, ast.Return, ast.Continue, ast.Break))
        binds = any(isinstance(part, ast.NamedExpr) for part in ast.walk(node.test))
        if exits and not binds and not node.orelse:
            yield "guard", begin(node.test), end(node.test), "False"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number = node.value * 2 or 1.0 if isinstance(node.value, float) else node.value + 1
        yield "constant", begin(node), end(node), repr(number)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        name, argument = node.func.id, node.args[0]
        if name in ("min", "max"):
            yield "call", begin(node.func), end(node.func), "max" if name == "min" else "min"
        elif name in ("abs", "reversed", "sorted"):
            inner = text.source[begin(argument) : end(argument)].decode()
            yield "call", begin(node), end(node), f"{'list' if name == 'sorted' else ''}({inner})"


def operator_edits(kind, operands, operators, text):
    """Yield the edits that put another operator between two operands."""
    for (first_operand, second_operand), operator in zip(
        pairwise(operands), operators, strict=True
    ):
        symbol, replacement = OPERATORS.get(type(operator), ("", ""))
        gap = text.between(first_operand, second_operand)
        # Sequences are joined and repeated: another operator would only raise TypeError.
        sequence = any(
            isinstance(side, SEQUENCES) or isinstance(getattr(side, "value", None), str)
            for side in (first_operand, second_operand)
        )
        if symbol and gap.count(symbol) == 1 and not (kind == "arithmetic" and sequence):
            begin = text.end(first_operand) + len(gap[: gap.index(symbol)].encode())
            yield kind, begin, begin + len(symbol), replacement
