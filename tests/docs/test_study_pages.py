"""Tests that docs/reference/study-file.md has every key, and docs/studies.md every study."""

import re

import pytest

from tests.docs.commands import ROOT, list_items
from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.features import GROUPS
from xfbench.model.settings import SETTINGS
from xfbench.planning import experiment, study_form
from xfbench.planning.matrix import Matrix
from xfbench.studies import answer, cells, quantities

PAGE = (ROOT / "docs/reference/study-file.md").read_text()


def read_section(heading):
    """Return the text below a heading of the page, up to the next heading."""
    [text] = re.findall(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return text


def list_keys_of_blocks(heading):
    """Return the names that each table or list of a section explains, a list for each of them."""
    blocks = re.findall(
        r"(?:^\|.*\n)+|(?:^- .*(?:\n  .*)*\n\n?)+", read_section(heading), re.MULTILINE
    )
    name = re.compile(r"^(?:\| |- )`\"?([^`\"]+)\"?`(?: \||:)", re.MULTILINE)
    return [names for block in blocks if (names := name.findall(block))]


def list_code_names(text):
    return set(re.findall(r"`(\w+)`", text))


def list_keys(model):
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize(
    ("heading", "number", "names"),
    [
        ("Top level", 0, list_keys(experiment.Experiment)),
        ("Batch search", 0, list_keys(study_form.BatchSearch)),
        ("Prepared data", 0, list_keys(study_form.PreparedData)),
        ("Analyses", 0, list_keys(study_form.Analysis)),
        ("Analyses", 1, set(answer.ANALYSES)),
        ("Quantities", 0, set(quantities.QUANTITIES)),
        ("Claims", 0, list_keys(study_form.Claim)),
        ("Unjudged sentences", 0, list_keys(study_form.UnjudgedFinding)),
        ("Published figures", 0, list_keys(Citation)),
        ("Published figures", 1, list_keys(Figure)),
    ],
)
def test_a_list_has_every_key_and_no_other(heading, number, names):
    keys = list_keys_of_blocks(heading)[number]
    assert set(keys) == names and len(keys) == len(names)


def test_the_section_of_matrices_names_every_setting():
    # The other words in code style are values of `size` and `probe`, and the size of a study.
    names = list_code_names(read_section("Matrices"))
    assert list_keys(Matrix) <= names


@pytest.mark.parametrize("group", GROUPS)
def test_the_section_of_claims_names_every_group_of_features(group):
    assert f'`"{group}"`' in read_section("Claims")


def test_settings_of_over_and_where_are_named_as_in_a_matrix():
    name_by_field = {setting.cell_field: setting.name for setting in SETTINGS}
    names = {name_by_field.get(field, field) for field in cells.SETTINGS}
    strategy_option = "servers"
    assert names | {strategy_option, "over", "where"} == list_code_names(read_section("Settings"))


def test_published_section_names_every_key_of_about():
    assert list_keys(About) <= list_code_names(read_section("Published figures"))


def test_the_overview_has_the_question_and_sources_of_every_built_in_study():
    text = (ROOT / "docs/studies.md").read_text()
    item = re.compile(r"`([a-z-]+)`: (.+\?) Source: (.+)\.")
    entries = [match.groups() for match in map(item.fullmatch, list_items(text)) if match]
    studies = [
        experiment.load(file.stem)
        for file in sorted((ROOT / "xfbench/planning/experiments").glob("*.toml"))
    ]
    assert entries == [
        (study.name, study.question, ", ".join(study.sources) or "–") for study in studies
    ]
