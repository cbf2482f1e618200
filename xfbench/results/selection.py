"""Which records are meant: conditions on any field, as they are typed.

`framework=torch`, `threads>=2`, `software.packages.numpy=1.26.4`, `certificate!=null`. A name
without a dot that is no field of a record is one of its request. Of a list one element is enough.
"""

from __future__ import annotations

import operator
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel

from xfbench.base import errors
from xfbench.base.errors import UsageError
from xfbench.records.record import Record

_FORM = re.compile(r"([\w.+-]+?)\s*(>=|<=|!=|=|>|<|~)\s*(.*)", re.DOTALL)
_NEXT = re.compile(r",\s*(?=[\w.+-]+\s*(?:>=|<=|!=|=|>|<|~))")
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_WORDS = {"true": True, "false": False}
_SCALARS = (str, int, float, bool)


@dataclass(frozen=True)
class Field:
    """What a field of a record holds, None where that is not one value; and its default."""

    kind: type | None
    default: Any = None


@cache
def fields() -> dict[str, Field]:
    """Every field of a record by its path, as in "request.threads"."""
    return dict(_of_model(Record, ""))


def _of_model(model: type[BaseModel], above: str) -> Iterator[tuple[str, Field]]:
    for name, field in model.model_fields.items():
        path = above + (field.alias or name)
        told = typing.get_args(field.annotation)
        union = typing.get_origin(field.annotation) in (types.UnionType, typing.Union)
        kinds = [kind for kind in told if kind is not types.NoneType] if union else []
        kind: Any = kinds[0] if len(kinds) == 1 else field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _of_model(kind, f"{path}.")
        elif typing.get_origin(kind) is Literal:
            yield path, Field(str, None if field.is_required() else field.get_default())
        elif kind in _SCALARS:
            default = None if field.is_required() else field.get_default()
            yield path, Field(kind, default)
        else:
            yield path, Field(None)


@dataclass(frozen=True)
class Condition:
    """One field, how it is compared, and with what; `kind` is what the field holds.

    `~` is for text that has `value` in it, whatever the case.
    """

    field: str
    how: str
    value: str
    kind: type | None

    def holds(self, document: dict[str, Any]) -> bool:
        """Whether it is so in a record's JSON values."""
        if self.how == "!=":
            return not self._equal(document)
        if self.how == "=":
            return self._equal(document)
        return any(self._ordered(one) for one in _found(document, self.field.split(".")))

    def _equal(self, document: dict[str, Any]) -> bool:
        found = list(_found(document, self.field.split(".")))
        if self.value == "null":
            return all(one is None for one in found)
        return any(_same(one, self.value) for one in found)

    def _ordered(self, one: Any) -> bool:
        if self.how == "~":
            return isinstance(one, str) and self.value.casefold() in one.casefold()
        if isinstance(one, str):
            return _ORDER[self.how](one, self.value)
        number = _number(self.value)
        if number is None or isinstance(one, bool) or not isinstance(one, int | float):
            return False
        return _ORDER[self.how](one, number)


def _same(one: Any, text: str) -> bool:
    if isinstance(one, bool):
        return _WORDS.get(text) is one
    if isinstance(one, int | float):
        number = _number(text)
        return number is not None and one == number
    return isinstance(one, str) and one == text


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _found(value: Any, path: list[str]) -> Iterator[Any]:
    """The values at a path; a key may have dots in it, and of a list every element is meant."""
    if isinstance(value, list):
        for one in value:
            yield from _found(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for length in range(len(path), 0, -1):
            if (key := ".".join(path[:length])) in value:
                yield from _found(value[key], path[length:])


def parse(texts: Sequence[str]) -> list[Condition]:
    """From `--where` as it is typed, several at once with commas between.

    Raises UsageError on another form, or an unknown field.
    """
    return [_condition(one) for text in texts for one in _NEXT.split(text)]


def equal(field: str, value: str) -> Condition:
    """That a field, by its whole path, has this value."""
    return Condition(field, "=", value, fields()[field].kind)


def _condition(text: str) -> Condition:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"--where {text}: the form is FIELD=VALUE (or !=, >=, <=, >, <, ~), "
            "as in request.threads>=2"
        )
    name, how, value = found.groups()
    if not value.isprintable() and any("\ud800" <= one <= "\udfff" for one in value):
        raise UsageError(f"--where {name}: a value that is no text cannot be looked for")
    known = fields()
    if name not in known and f"request.{name}" in known:
        name = f"request.{name}"
    inside = any(name.startswith(f"{path}.") for path, one in known.items() if one.kind is None)
    if name not in known and not inside:
        short = [path.removeprefix("request.") for path in known]
        raise errors.unknown_name_error("field", name, {*known, *short})
    kind = known[name].kind if name in known else None
    null = value == "null" and how in ("=", "!=")
    if kind in (int, float) and not null and _number(value) is None:
        raise UsageError(f"--where {text}: {name} is a number")
    if kind is bool and not null and (value not in _WORDS or how in _ORDER):
        raise UsageError(f"--where {text}: {name} is true or false")
    if how == "~" and kind not in (str, None):
        raise UsageError(f"--where {text}: {name} is no text to look into")
    return Condition(name, how, value, kind)
