"""The page of all fields: whole, and up to date."""

from pathlib import Path

from xfbench.rendering import schema_page
from xfbench.store import selection

ROOT = Path(__file__).parents[2]
NESTED_MODELS = list(schema_page.record_and_nested_models())


def test_schema_page_is_up_to_date():
    assert (ROOT / "docs/schema.md").read_text() == schema_page.render_page(), "make schema"


def test_every_field_has_a_meaning():
    undocumented_fields = [
        f"{model.__name__}.{name}"
        for _, model in NESTED_MODELS
        for name in model.model_fields
        if not schema_page.field_meaning(model, name)
    ]
    assert undocumented_fields == [], (
        "say it in the class's docstring, or in xfbench/rendering/meanings.toml"
    )


def test_every_meaning_belongs_to_an_existing_field():
    owners = {owner.__name__: owner for _, model in NESTED_MODELS for owner in model.__mro__}
    for name, fields in schema_page.load_extra_meanings().items():
        field_names = {field.alias or n for n, field in owners[name].model_fields.items()}
        assert set(fields) <= field_names, name


def test_every_selection_field_is_on_the_schema_page():
    page = schema_page.render_page()
    for path in selection.record_fields():
        assert f"\n- `{path}` (" in page


def test_schema_page_shows_units_and_types():
    page = schema_page.render_page()
    assert "- `measurement.step_seconds` (list of number; s): " in page
    assert "- `machine.memory_bytes` (integer; B): " in page
    assert "- `request.strategy_options` (object): " in page
    assert "- `workload.input_shape` (list of integer, 3): " in page
    assert "- `request.threads` (integer): number of threads per rank\n" in page
