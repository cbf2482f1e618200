"""The page docs/schema.md: every field of a record, generated from the models.

The meaning of a field comes from `meanings.toml`, or else from the docstring of the field's class.
`make schema` writes the page.
"""

from __future__ import annotations

import itertools
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from xfbench.model.record import SCHEMA, Record
from xfbench.rendering import formats

_PAGE_INTRODUCTION = f"""# The record, field by field

This page is generated from the models by `make schema`: edit the models or
`xfbench/rendering/meanings.toml`, not the page. A record is one launch, as a JSON document of the
schema `{SCHEMA}`. Programs can use the JSON schema
`xfbench/model/record.schema.json`. Times are in seconds, sizes in bytes. A field may be null if its
type says so. Fields may be added, but none is renamed.

A list gives the type of each field, its unit, and its meaning.

Use any of these paths in `--where` ([results.md](results.md)); `request.` may be omitted. In Python
the fields are attributes ([python.md](python.md)). A record has no derived figures such as
throughput: they are computed when it is read ([method.md](method.md)).
"""
_SENTENCE_BREAK = re.compile(r"(?<=[.;])\s+(?=[A-Z`])")
_UNITS_BY_ENDING = {
    "seconds": "s",
    "bytes": "B",
    "bytes_per_step": "B",
    "device_bytes_of_all": "B",
    "resident_before": "B",
    "resident_of": "B",
    "bits_per_second": "bit/s",
    "joules": "J",
    "macs_per_image": "multiply-accumulates",
    "matrix_product": "floating-point operations/s",
    "matrix_product_tries": "floating-point operations/s",
    "memory_bandwidth": "B/s",
    "cpus": "CPUs",
    "hz": "Hz",
    "celsius": "°C",
    "watts": "W",
    "accuracy": "share of one",
    "relative_error": "share of one",
}
_TYPE_NAMES = {str: "text", int: "integer", float: "number", bool: "true or false"}


def render_page() -> str:
    """Return the page as Markdown."""
    sections = [_PAGE_INTRODUCTION]
    for path, model in record_and_nested_models():
        title = f"## `{path}`" if path else "## The record itself"
        sections.append(f"{title}\n\n{_first_docstring_paragraph(model)}\n")
        items = []
        for name, field in model.model_fields.items():
            json_name = field.alias or name
            full_name = f"{path}.{json_name}" if path else json_name
            unit = field_unit(json_name)
            kind = "; ".join(filter(None, (describe_type(field.annotation), unit)))
            items.append(f"- `{full_name}` ({kind}): {field_meaning(model, name) or ''}")
        sections.append(formats.join_markdown_blocks(items) + "\n")
    return "\n".join(sections)


def record_and_nested_models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the path and the model of every object in a record. The record itself is first.

    The path of the record is "". The path of an object in a list ends in `[]`. A model that
    contains itself is not yielded again within itself.
    """
    yield from _walk_models("", Record, ())


def _walk_models(
    path: str, model: type[BaseModel], ancestors: tuple[type[BaseModel], ...]
) -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, model
    for name, field in model.model_fields.items():
        for nested_model, is_list in _models_in_type(field.annotation):
            if nested_model not in (*ancestors, model):
                nested_path = f"{path}.{name}".lstrip(".") + ("[]" if is_list else "")
                yield from _walk_models(nested_path, nested_model, (*ancestors, model))


def _models_in_type(
    annotation: Any, in_list: bool = False
) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, in_list
    for argument in typing.get_args(annotation):
        yield from _models_in_type(argument, in_list or typing.get_origin(annotation) is tuple)


def field_meaning(model: type[BaseModel], name: str) -> str | None:
    """Return the meaning of the model's field `name`, or None if it is not documented.

    The meaning comes from the model's class, or from the nearest base class that documents the
    field. An entry in `meanings.toml` has precedence over a docstring. In a docstring, the meaning
    is the list item of the field, or else the first sentence that has its name in backticks.
    """
    meanings_by_class = load_extra_meanings()
    for base_class in model.__mro__:
        if base_class is BaseModel:
            break
        table = meanings_by_class.get(base_class.__name__, {})
        field: FieldInfo = model.model_fields[name]
        if meaning := table.get(field.alias or name):
            return meaning
        parts = re.split(r"\n\s*(?=- )|\n\s*\n", base_class.__doc__ or "")
        texts = [" ".join(part.split()) for part in parts]
        for text in texts:
            if text.startswith(f"- `{name}`: "):
                return text.partition(": ")[2]
        for sentence in itertools.chain(*map(_SENTENCE_BREAK.split, texts)):
            if f"`{name}`" in sentence:
                return sentence
    return None


def load_extra_meanings() -> Mapping[str, Mapping[str, str]]:
    """Return the content of `meanings.toml`: meanings of fields by class and field."""
    file = Path(__file__).with_name("meanings.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _first_docstring_paragraph(model: type[BaseModel]) -> str:
    """Return the first paragraph of a model's docstring."""
    text = (model.__doc__ or "").strip()
    return " ".join(text.split("\n\n")[0].split())


def field_unit(name: str) -> str:
    """Return the unit that the end of the field's name implies, or "" if it implies none."""
    for ending, symbol in _UNITS_BY_ENDING.items():
        if name == ending or name.endswith(f"_{ending}"):
            return symbol
    return ""


def describe_type(annotation: Any) -> str:
    """Return the type in words, such as "integer or null"."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return describe_type(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(
            "null" if argument is types.NoneType else describe_type(argument)
            for argument in arguments
        )
    if origin is Literal:
        return ", ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple:
        inner = typing.get_args(arguments[0])
        if typing.get_origin(arguments[0]) is tuple and len(inner) == 2 and inner[1] is not ...:
            return "object"  # ordered pairs, which are an object in JSON
        return f"list of {describe_type(arguments[0])}" + (
            "" if arguments[-1] is ... else f", {len(arguments)}"
        )
    if origin is dict:
        return f"object: name to {describe_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "object"
    return _TYPE_NAMES[annotation]


if __name__ == "__main__":
    print(render_page(), end="")
