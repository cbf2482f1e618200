"""docs/reference/sites.md: it has every key of a site file, with its default and valid examples."""

import json
import re
import tomllib

import pytest
from pydantic import BaseModel

from tests.docs.commands import ROOT, join_code, list_items
from xfbench.host import sites

PAGE = "docs/reference/sites.md"
MODEL_BY_SECTION = {
    "Keys of a site": sites.Site,
    "Keys of a queue": sites.Queue,
    "Keys of the modules": sites.Modules,
}


def read_rows(section):
    """Return (key, type, default, meaning, example) of each item of a section's lists."""
    body = (ROOT / PAGE).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    item = re.compile(r"(`\w+`) \((.*?); (?:default: )?(.*?)\): (.*) Example: (`.*`)")
    matches = map(item.fullmatch, list_items(body))
    return [[text.strip("`") for text in match.groups()] for match in matches if match]


def format_default(field):
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "none"
    return json.dumps({} if isinstance(default, BaseModel) else default)


@pytest.mark.parametrize(("section", "model"), MODEL_BY_SECTION.items())
def test_page_has_every_key_with_its_default(section, model):
    documented = [(row[0], row[2]) for row in read_rows(section)]
    expected = [(name, format_default(field)) for name, field in model.model_fields.items()]
    assert sorted(documented) == sorted(expected)


@pytest.mark.parametrize(("section", "model"), MODEL_BY_SECTION.items())
def test_each_example_is_a_valid_value(section, model):
    values = {"title": "required"} if model is sites.Site else {}
    for key, *_, example in read_rows(section):
        if example.startswith("[") and example.strip("[]").replace(".", "").isalnum():
            assert key == example.strip("[]").partition(".")[0]  # the head of a table
            continue
        values |= tomllib.loads(f"{key} = {example}")
    model.model_validate(values)


def test_complete_example_is_a_valid_site_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(join_code(PAGE, "toml"))
    site = sites.load_site(str(file))
    assert site.launcher == "slurm"
    assert site.queue in site.queues
    assert {*site.model_fields_set} >= {"title", "modules", "variables"}


def test_page_lists_every_built_in_site():
    names = {item.partition(": ")[0].strip("`") for item in list_items((ROOT / PAGE).read_text())}
    assert {file.stem for file in (ROOT / "launchers/sites").glob("*.toml")} <= names
