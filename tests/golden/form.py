"""The form of golden files: JSON with sorted keys, rounded figures and no sentences."""

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Text for a reader, which may be written anew at any time.
SENTENCES = {"reason", "detail", "differs", "evidence", "uncounted"}
DIGITS = 9  # significant ones: the last digits of a figure depend on the mathematics library
WIDTH = 100
_NULL = {"type": "null"}
_CHOICES = ("allOf", "anyOf", "oneOf")
_STRUCTURE = {
    *("title", "description", "$schema", "$defs", "$ref", *_CHOICES),
    *("properties", "required", "prefixItems", "items"),
}


def text(value: Any, indent: int = 0) -> str:
    """Return the value as JSON, with each part that fits into a line on one line."""
    short = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    if not value or not isinstance(value, dict | list) or (indent and len(short) + indent <= WIDTH):
        return short
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {text(value[key], indent + 1)}"
            for key in sorted(value)
        ]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(inner + text(item, indent + 1) for item in value) + f"\n{inner[1:]}]"


def comparable(value: Any) -> Any:
    """Return the JSON value with rounded figures, short digests and "…" for each sentence.

    The fields of an object that are null share one line.
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str) and value.startswith("sha256:"):
        return value[7:19]
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        present = {
            key: _without_sentence(key, item) for key, item in value.items() if item is not None
        }
        empty = sorted(key for key, item in value.items() if item is None)
        return {**present, "null": " ".join(empty)} if empty else present
    return value


def _without_sentence(key: str, value: Any) -> Any:
    return ("…" if value else value) if key in SENTENCES else comparable(value)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that holds no other with its path; every item of a list is `[]`."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for item in value:
            yield from leaves(item, f"{path}[]")
    else:
        yield path, value


def schema_fields(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema as a flat object: the constraints of each field by its path.

    Names of classes, titles and descriptions are left out. A field that contains its own kind
    refers to the path above it.
    """
    return dict(_fields(schema, "", schema.get("$defs", {}), {}))


def _fields(
    node: dict[str, Any], path: str, definitions: dict[str, Any], enclosing_paths: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    if "$ref" in node:
        definition = node["$ref"].rpartition("/")[2]
        if definition in enclosing_paths:
            yield path, {"same as": enclosing_paths[definition]}
            return
        enclosing_paths = {**enclosing_paths, definition: path}
        node = {**definitions[definition], **node}
    constraints_here = {key: item for key, item in node.items() if key not in _STRUCTURE}
    if isinstance(constraints_here.get("additionalProperties"), dict):
        del constraints_here["additionalProperties"]
    if any(_NULL in node.get(key, ()) for key in _CHOICES):
        constraints_here["null"] = True
    for suffix, nested_schema, facts in _nested_schemas(node):
        nested_path = f"{path}{suffix}".lstrip(".")
        for field_path, constraints in _fields(
            nested_schema, nested_path, definitions, enclosing_paths
        ):
            if field_path == path:
                constraints_here |= constraints
            else:
                yield field_path, {**constraints, **(facts if field_path == nested_path else {})}
    yield path, constraints_here


def _nested_schemas(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the schemas in a schema: what the path has more, the schema, and facts about it."""
    for key in _CHOICES:
        options = [item for item in node.get(key, ()) if item != _NULL]
        for number, item in enumerate(options):
            yield ("" if len(options) == 1 else f"<{key} {number}>"), item, {}
    for name, item in node.get("properties", {}).items():
        yield f".{name}", item, {"required": name in node.get("required", ())}
    for number, item in enumerate(node.get("prefixItems", ())):
        yield f"[{number}]", item, {}
    if "items" in node:
        yield "[]", node["items"], {}
    if isinstance(node.get("additionalProperties"), dict):
        yield ".*", node["additionalProperties"], {}


def builders_by_file(
    subject: str, names: Iterable[str], build: Callable[[str], Any]
) -> dict[str, Callable[[], Any]]:
    """Return a builder for each name, by the name of its file."""
    return {f"{subject}/{name}": functools.partial(build, name) for name in names}
