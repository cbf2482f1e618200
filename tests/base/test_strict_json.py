"""JSON of others: a key may not occur twice, and a few bytes may not fill the memory."""

import ast

import pytest

from tests.product_modules import MODULES
from xfbench.base import strict_json

# These read only what xfbench itself wrote, on this machine and for this user.
READS_OWN_JSON = {
    *("xfbench.base.strict_json", "xfbench.base.tool_output", "xfbench.base.digests"),
    *("xfbench.environments.environment", "xfbench.equality.oracle", "xfbench.execution.canary"),
    *("xfbench.execution.job_queue", "xfbench.host.roofline", "xfbench.rendering.external_figures"),
    *("xfbench.datasets.writing", "xfbench.analysis.kept_rows"),
}
# The worker and adapters have no xfbench.base. Adapters read what their framework wrote.
HAVE_NO_READER = ("xfbench.worker", "xfbench.adapters", "xfbench.workloads")
READERS = {"json.loads", "json.load", "orjson.loads", "json.JSONDecoder"}


def find_json_readers(source):
    """Return the calls in a module that parse JSON without the strict reader."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call)
        for call in calls
        if ast.unparse(call.func) in READERS
        and not any(
            ast.unparse(each.value) == "strict_json.unique_object" for each in call.keywords
        )
    ]


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(HAVE_NO_READER)])
def test_json_of_others_is_read_by_the_strict_reader(module):
    source = MODULES[module].read_text()
    assert module in READS_OWN_JSON or find_json_readers(source) == []


def test_the_rule_finds_other_readers():
    assert find_json_readers("def f(x):\n    return json.loads(x)") == ["json.loads(x)"]
    assert find_json_readers("json.JSONDecoder(object_pairs_hook=dict)")
    assert not find_json_readers("json.JSONDecoder(object_pairs_hook=strict_json.unique_object)")


@pytest.mark.parametrize(
    "text",
    ['{"id": 1, "id": 1}', '{"a": [{"b": 1, "\\u0062": 2}]}', '{"a": {"": 1, "": 2}}'],
)
def test_a_repeated_key_is_refused(text):
    with pytest.raises(strict_json.DuplicateKeyError, match="occurs twice"):
        strict_json.parse(text)
    with pytest.raises(strict_json.DuplicateKeyError):
        strict_json.parse(text.encode())


class CountingKey(str):
    """A key that counts the comparisons of all keys."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountingKey.comparisons += 1
        return str(self) == str(other)


def test_a_repeated_key_among_many_is_found_without_comparing_all_keys():
    pairs = [(CountingKey(name), 0) for name in (*map(str, range(2000)), "1999")]
    CountingKey.comparisons = 0
    with pytest.raises(strict_json.DuplicateKeyError, match="'1999' occurs twice"):
        strict_json.unique_object(pairs)
    assert CountingKey.comparisons < 20_000


def test_values_are_counted_before_they_are_made():
    assert strict_json.parse("[1, 2, {}]", max_values=4) == [1, 2, {}]
    for content in ("[1, 2, {}]", b"[[[[", "not even JSON,,,,"):
        with pytest.raises(strict_json.TooManyValuesError, match="more than 3 values"):
            strict_json.parse(content, max_values=3)
