"""docs/reference/privacy.md: it has each field with text, with what `privacy.py` does to it."""

import re
from pathlib import Path

import pytest

from xfbench.base.private_names import KnownNames
from xfbench.model import privacy
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.store.tuning_results import Tuning

PAGE = (Path(__file__).parents[2] / "docs/reference/privacy.md").read_text()
NAMES = KnownNames(("quetzal",), ())
SECTIONS = {
    "Changed texts": lambda text: "…",
    "Counted programs": lambda text: "another process",
    "Unchanged texts": lambda text: text,
}


def list_text_paths(schema, node, path="", depth=0):
    """Yield the path of each text in documents of the JSON schema."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    if depth > 8:
        return
    if node.get("type") == "string" or any(isinstance(each, str) for each in node.get("enum", ())):
        yield path
    parts = [*node.get("anyOf", ()), *node.get("prefixItems", ())]
    parts += [
        node[name] for name in ("items", "additionalProperties") if isinstance(node.get(name), dict)
    ]
    for part in parts:
        yield from list_text_paths(schema, part, path, depth + 1)
    for name, part in node.get("properties", {}).items():
        yield from list_text_paths(schema, part, f"{path}.{name}".lstrip("."), depth + 1)


def find_section(path, kind):
    """Return the section of the page with the most specific entry for a field."""
    entries = {}
    for title in SECTIONS:
        section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
        for item in re.split(r"\n- ", section)[1:]:
            owner = re.match(r"(Certificates|Searches): ", item)
            if (owner[1] if owner else "Records") == kind:
                heading = re.sub(r"^\w+: (?=`)", "", item)
                names = re.match(r"[^:]*", heading.replace("\n", " "))[0]
                entries |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), title)
    matches = [entry for entry in entries if f"{path}.".startswith(f"{entry}.")]
    return entries[max(matches, key=len)] if matches else None


def build_document(path, text):
    """Return a document with the text in one field."""
    value = text
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def read_text(document):
    while isinstance(document, dict):
        [document] = document.values()
    return document


@pytest.mark.parametrize(
    ("model", "kind"), [(Record, "Records"), (Certificate, "Certificates"), (Tuning, "Searches")]
)
def test_page_says_what_happens_to_each_text(model, kind):
    schema = model.model_json_schema(by_alias=True)
    paths = {*list_text_paths(schema, schema)}
    shared = {"schema", "id", "created"}
    assert shared < paths
    for path in sorted(paths - (shared if kind != "Records" else set())):
        section = find_section(path, kind)
        assert section, f"{path} is not on the page"
        text = privacy.make_private(build_document(path, "quetzal"), NAMES)
        assert read_text(text) == SECTIONS[section]("quetzal"), path


@pytest.mark.parametrize("first", [1, 0.5, True, None, [2]])
def test_text_is_changed_wherever_it_is_in_a_list(first):
    document = {"reason": [first, "quetzal"], "steps": [0.1, {"node": "quetzal"}]}
    changed = privacy.make_private(document, NAMES)
    assert "quetzal" not in str(changed) and changed["reason"][0] == first
    numbers = {"times": [1, 0.5, 2]}
    assert privacy.make_private(numbers, NAMES) == numbers
