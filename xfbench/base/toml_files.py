"""Reading of TOML files that users write, such as experiments, sites and adapters."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from xfbench.base import safe_read
from xfbench.base.errors import UsageError, unknown_name_error
from xfbench.base.shared_files import UnsafeFileError
from xfbench.base.terminal_text import make_legible

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 2**20  # more than a person writes
_MAX_DOTS = 100  # of a line: the time for a dotted key grows with the square of its parts


def read_text_and_content(file: Path) -> tuple[str, dict[str, Any]]:
    """Return (text, parsed content) of a TOML file.

    Raises UsageError if the file cannot be read, is longer than `MAX_BYTES`, or is invalid.
    """
    try:
        # Some editors of Windows begin a file with a mark, which TOML does not know.
        text = safe_read.read_bytes(file, MAX_BYTES, follow_link=True).decode("utf-8-sig")
        if any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
            raise ValueError(f"a line has more than {_MAX_DOTS} dots")
        content = tomllib.loads(text)
        if _has_null_character(content):
            raise ValueError("a text has the character \\u0000, which no name or path has")
        return text, content
    except UnsafeFileError:  # its message names the file
        raise
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except RecursionError as error:
        raise UsageError(f"{file}: it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not a text in UTF-8: {error}: save it as UTF-8") from error
    except ValueError as error:  # invalid TOML, a huge number, or too long
        raise UsageError(f"{file}: {error}") from error


def _has_null_character(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(map(_has_null_character, [*value, *value.values()]))
    return isinstance(value, list) and any(map(_has_null_character, value))


def validate(model: type[M], content: Mapping[str, Any], file: Path, text: str) -> M:
    """Return the content of a TOML file as a `model`.

    Raises UsageError with the file, the line and the setting if the content is invalid. `text` is
    the text of the file.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        line = _find_line(text, error.errors()[0])
        place = f"{file}, line {line}" if line else str(file)
        raise UsageError(f"{place}: {describe_problem(error, model)}") from error


def describe_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first validation error of a `model` in words: the setting and the problem.

    For an unknown setting, the message suggests a setting with a similar name, or lists the
    settings of its table.
    """
    first = error.errors()[0]
    # For a field with several types, the location includes a type in brackets, which is left out.
    parts = [make_legible(str(part)) for part in first["loc"] if "[" not in str(part)]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        fields = _find_table(model, first["loc"]).model_fields
        names = [field.alias or name for name, field in fields.items()]
        message = str(unknown_name_error("setting", parts.pop(), names))
    elif first["type"] == "greater_than_equal":
        message = f"give at least {first['ctx']['ge']} (got {first['input']})"
    path = ".".join(parts)
    return f"{path}: {message}" if path else message


def _find_table(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the model of the table that has the last part of `location` as a key."""
    for part in location[:-1]:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                model = _find_model(field.annotation) or model
                break
    return model


def _find_model(annotation: Any) -> type[BaseModel] | None:
    """Return the first model in an annotation, such as that of a list of tables."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_find_model, get_args(annotation))), None)


def _find_line(text: str, error: ErrorDetails) -> int | None:
    """Return the number of the line of the setting, or of the table that lacks it, or None."""
    parts = [part for part in error["loc"] if "[" not in str(part)]
    if error["type"] == "missing":
        parts = parts[:-1]
    lines = text.splitlines()
    names: list[str] = []
    table_lines = range(next(_find_headers(lines, r"[^\]]+"), len(lines)))
    header = None
    for part, next_part in itertools.zip_longest(parts, parts[1:]):
        if isinstance(part, str):
            names.append(part)
            number = next_part if isinstance(next_part, int) else 0
            quoted = (rf"""["']?{re.escape(name)}["']?""" for name in names)
            headers = [*_find_headers(lines, r"\s*\.\s*".join(quoted), (header or 0))]
            if isinstance(next_part, int) and not headers:
                names = [part]  # an array: which of its lines has the item is unknown
                break
            if number < len(headers):
                header = headers[number]
                end = next(_find_headers(lines, r"[^\]]+", header + 1), len(lines))
                table_lines = range(header + 1, end)
                if next_part is None:
                    return header + 1
    for name in reversed(names):
        key = re.compile(rf"""(^|[{{,.])\s*["']?{re.escape(name)}["']?\s*[=.]""")
        for index in table_lines:
            if key.search(lines[index]):
                return index + 1
    return None if header is None else header + 1


def _find_headers(lines: Sequence[str], name_pattern: str, start: int = 0) -> Iterator[int]:
    """Yield the indices of the lines from `start` on that are the header of such a table."""
    header = re.compile(rf"\s*\[\[?\s*{name_pattern}\s*\]\]?\s*(#|$)")
    return (index for index in range(start, len(lines)) if header.match(lines[index]))


def find_line_of_word(text: str, word: str) -> int | None:
    """Return the number of the first line in which `word` is a key or a value.

    Return None if no line has `word`. The first line has the number 1.
    """
    pattern = re.compile(rf"""(^|[\s."'\[]){re.escape(word)}($|[\s."'=\]])""")
    for number, line in enumerate(text.splitlines(), 1):
        if word and pattern.search(line):
            return number
    return None
