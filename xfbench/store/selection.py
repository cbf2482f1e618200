"""Conditions on any field of a record, as typed in `--where`.

Examples: `framework=torch`, `threads>=2`, `software.packages.numpy=1.26.4`, `certificate!=null`.
The prefix `request.` may be omitted: `threads` means `request.threads`. The name of an option
means the field with its value: `batch-size` means `request.global_batch_size`. A list meets `!=` if
no element equals the value. A list meets any other comparison if one element meets it.
"""

from __future__ import annotations

import operator
import re
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel

from xfbench.base import errors
from xfbench.base.errors import UsageError
from xfbench.model import settings
from xfbench.model.record import Record

_CONDITION_PATTERN = re.compile(r"([\w.+-]+?)\s*(>=|<=|!=|=|>|<|~)\s*(.*)", re.DOTALL)
_SEPARATOR_PATTERN = re.compile(r",\s*(?=[\w.+-]+\s*(?:>=|<=|!=|=|>|<|~))")
_ORDER_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_MAX_VALUES = 12  # of a field, in a message
_BOOLEANS = {"true": True, "false": False}
_SCALARS = (str, int, float, bool)


@dataclass(frozen=True)
class Field:
    """The type and the default of a record's field.

    `kind` is str, int, float or bool, or None if the field is not a single value. `default` is None
    if the field is required.
    """

    kind: type | None
    default: Any = None


@cache
def record_fields() -> dict[str, Field]:
    """Return every field of a record by the field's path, such as "request.threads"."""
    return dict(_fields_of_model(Record, ""))


def _fields_of_model(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Field]]:
    for name, field in model.model_fields.items():
        path = prefix + (field.alias or name)
        arguments = typing.get_args(field.annotation)
        is_union = typing.get_origin(field.annotation) in (types.UnionType, typing.Union)
        kinds = [kind for kind in arguments if kind is not types.NoneType] if is_union else []
        kind: Any = kinds[0] if len(kinds) == 1 else field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields_of_model(kind, f"{path}.")
        elif typing.get_origin(kind) is Literal:
            yield path, Field(str, None if field.is_required() else field.get_default())
        elif kind in _SCALARS:
            default = None if field.is_required() else field.get_default()
            yield path, Field(kind, default)
        else:
            yield path, Field(None)


@dataclass(frozen=True)
class Condition:
    """A comparison of one field with a value.

    - `field`: path of the field, such as "request.threads".
    - `comparison`: `=`, `!=`, `>=`, `<=`, `>`, `<`, `~` or `in`. The comparison `~` holds if the
      field's text contains `value`, ignoring case. The comparison `in` holds if the field is one of
      the values in `value`, which have commas between them.
    - `value`: the value as typed. "null" stands for a field that is missing or null.
    - `kind`: type of the field, or None if the field is not a single value.
    """

    field: str
    comparison: str
    value: str
    kind: type | None

    def __str__(self) -> str:
        """Return the condition as typed after --where, or in words."""
        comparison = " in " if self.comparison == "in" else self.comparison
        return f"{self.field}{comparison}{self.value}"

    def holds(self, document: dict[str, Any]) -> bool:
        """Return whether the record with the JSON values `document` meets the condition."""
        if self.comparison == "in":
            values = [*_values_at(document, self.field.split("."))]
            return any(_is_same(each, name) for each in values for name in self.value.split(","))
        if self.comparison == "!=":
            return not self._is_equal(document)
        if self.comparison == "=":
            return self._is_equal(document)
        return any(
            self._order_or_substring_holds(field_value)
            for field_value in _values_at(document, self.field.split("."))
        )

    def _is_equal(self, document: dict[str, Any]) -> bool:
        field_values = list(_values_at(document, self.field.split(".")))
        if self.value == "null":
            return all(field_value is None for field_value in field_values)
        return any(_is_same(field_value, self.value) for field_value in field_values)

    def _order_or_substring_holds(self, field_value: Any) -> bool:
        if self.comparison == "~":
            return isinstance(field_value, str) and self.value.casefold() in field_value.casefold()
        if isinstance(field_value, str):
            return _ORDER_OPERATORS[self.comparison](field_value, self.value)
        number = _parse_float(self.value)
        if (
            number is None
            or isinstance(field_value, bool)
            or not isinstance(field_value, int | float)
        ):
            return False
        return _ORDER_OPERATORS[self.comparison](field_value, number)


def _is_same(field_value: Any, text: str) -> bool:
    if isinstance(field_value, bool):
        return _BOOLEANS.get(text) is field_value
    if isinstance(field_value, int | float):
        number = _parse_float(text)
        return number is not None and field_value == number
    return isinstance(field_value, str) and field_value == text


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _values_at(value: Any, path: list[str]) -> Iterator[Any]:
    """Yield the values at a path below `value`. For a list, yield the values of each element.

    Several parts of `path` may form one key, because keys may contain dots.
    """
    if isinstance(value, list):
        for element in value:
            yield from _values_at(element, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for length in range(len(path), 0, -1):
            if (key := ".".join(path[:length])) in value:
                yield from _values_at(value[key], path[length:])


def parse_conditions(texts: Sequence[str]) -> list[Condition]:
    """Parse the texts of `--where`. A text may contain several conditions, separated by commas.

    Raises UsageError if a text is malformed, a field is unknown, or a value has the wrong type.
    """
    return [_parse_condition(part) for text in texts for part in _SEPARATOR_PATTERN.split(text)]


def equal_condition(field: str, value: str) -> Condition:
    """Return the condition that the field with the full path `field` equals `value`."""
    return Condition(field, "=", value, record_fields()[field].kind)


def one_of_condition(field: str, values: Sequence[str]) -> Condition:
    """Return the condition that the field with the full path `field` is one of `values`."""
    return Condition(field, "in", ",".join(values), record_fields()[field].kind)


def describe_mismatch(
    conditions: Sequence[Condition],
    total: int,
    count: Callable[[Sequence[Condition]], int],
    list_values: Callable[[str, Sequence[Condition]], Sequence[object]],
    noun: str = "records",
) -> str:
    """Return a line that says why no record meets all conditions.

    The line names a condition that no record meets, or that no record meets of those that meet the
    conditions before it. It lists the values in the field of this condition: values that differ
    from the condition's value by a typing error come first.

    - `total`: number of all records.
    - `count`: returns the number of records that meet some conditions.
    - `list_values`: returns the values of a field in the records that meet some conditions, the
      most frequent first. None stands for records without the field.
    - `noun`: what the records are called.
    """
    if not conditions or not total:
        return f"no readable record among {total}"
    alone = next((each for each in conditions if not count([each])), None)
    shared: Sequence[Condition] = ()
    if alone is None:
        lengths = range(1, len(conditions))
        end = next((length for length in lengths if not count(conditions[: length + 1])), None)
        if end is None:
            return f"0 of {total} {noun} match {', '.join(map(str, conditions))}"
        alone, shared = conditions[end], conditions[:end]
    name = alone.field.removeprefix("request.")
    listed = list_values(alone.field, shared)
    values = [value for value in listed if value is not None]
    null = ", or null" if None in listed else ""
    listing = f"is one of {_list_near_first(alone, values)}{null}"
    reason = f"{name} {listing}" if values else f"none has a {name}"
    if shared:
        reason = f"with {', '.join(map(str, shared))}, {reason}"
    return f"0 of {total} {noun} match {alone}: {reason}"


def describe_mismatch_of_documents(
    conditions: Sequence[Condition],
    documents: Sequence[dict[str, Any]],
    noun: str = "records",
) -> str:
    """Return `describe_mismatch` of records with the JSON values `documents`."""

    def meeting(chosen: Sequence[Condition]) -> list[dict[str, Any]]:
        return [each for each in documents if all(condition.holds(each) for condition in chosen)]

    def list_values(field: str, chosen: Sequence[Condition]) -> list[object]:
        path = field.split(".")
        values = Counter(value for each in meeting(chosen) for value in _values_at(each, path))
        return [value for value, _ in values.most_common()]

    return describe_mismatch(
        conditions, len(documents), lambda chosen: len(meeting(chosen)), list_values, noun
    )


def _list_near_first(condition: Condition, values: Sequence[object]) -> str:
    """Return at most _MAX_VALUES of the values. Numbers are in their order, texts near ones first.

    - `values`: the most frequent first.
    """
    names = condition.value.split(",")
    numbers = sorted(value for value in values[:_MAX_VALUES] if isinstance(value, int | float))
    texts = [value for value in values if isinstance(value, str)]
    near = [text for text in texts if any(errors.is_near(name, text) for name in names)]
    frequent = [text for text in texts if text not in near][: max(0, _MAX_VALUES - len(near))]
    chosen = [str(number).lower() for number in numbers] + [*near, *sorted(frequent)][:_MAX_VALUES]
    return ", ".join(chosen) + (" and others" if len(values) > len(chosen) else "")


def _parse_condition(text: str) -> Condition:
    match = _CONDITION_PATTERN.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"--where {text}: expected FIELD=VALUE (or !=, >=, <=, >, <, ~), "
            "such as request.threads>=2"
        )
    name, comparison, value = match.groups()
    if comparison == "=" and value.startswith("="):
        raise UsageError(f"--where {text}: write one =, as in {name}={value.lstrip('= ')}")
    if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"--where {name}: the value is not valid text")
    known_fields = record_fields()
    request_field = f"request.{settings.find_record_field(name)}"
    if name not in known_fields and request_field in known_fields:
        name = request_field
    is_inside_field = any(
        name.startswith(f"{path}.") for path, field in known_fields.items() if field.kind is None
    )
    if name not in known_fields and not is_inside_field:
        short_names = [path.removeprefix("request.") for path in known_fields]
        raise errors.unknown_name_error("field", name, {*known_fields, *short_names})
    kind = known_fields[name].kind if name in known_fields else None
    is_null_test = value == "null" and comparison in ("=", "!=")
    if kind in (int, float) and not is_null_test and _parse_float(value) is None:
        raise UsageError(f"--where {text}: {name} is a number, but the value is not")
    if (
        kind is bool
        and not is_null_test
        and (value not in _BOOLEANS or comparison in _ORDER_OPERATORS)
    ):
        raise UsageError(f"--where {text}: {name} is true or false: use = or !=, and true or false")
    if comparison == "~" and kind not in (str, None):
        raise UsageError(f"--where {text}: {name} is not text, so ~ cannot search it")
    return Condition(name, comparison, value, kind)
