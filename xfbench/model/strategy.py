"""Ways to train on several ranks: what one needs beside them, and what may be chosen about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import errors
from xfbench.model.communication_cost import Algorithm

ASYNCHRONOUS = (
    "asynchronous: no rank waits for another, so that no two runs train the same weights, and "
    "none can be proven equal"
)
Value = int | str
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**n for n, letter in enumerate("kMG", 1)}
_UNITS |= {f"{letter}iB": 1024**n for n, letter in enumerate("KMG", 1)}


def format_options(options: Iterable[tuple[str, Value]]) -> str:
    """Options and their values as they are typed: "overlap=off servers=2"."""
    return " ".join(f"{name}={value}" for name, value in options)


def parse_size(text: str) -> int:
    """A size that somebody typed: 1MB, 512KiB, 1.5GB, or a number. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", text)
    if not match or match[2] not in _UNITS or not int(float(match[1]) * _UNITS[match[2]]):
        raise ValueError("a size in bytes is needed, as in 1MB or 512KiB")
    return int(float(match[1]) * _UNITS[match[2]])


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Option(_Table):
    """Something that may be chosen about a strategy, with what it is where nobody does.

    A count is a whole number of one or more, bytes are written 1MB, 512KiB or as their number,
    a choice is one of `choices`. The default may also be a word, which leaves it to the
    framework, or depend on the device.
    """

    title: str
    kind: Literal["count", "bytes", "choice"] = "choice"
    choices: tuple[str, ...] = ()
    default: Value | dict[str, Value]

    def default_for(self, device: str) -> Value:
        """What it is where nobody chooses."""
        return self.default[device] if isinstance(self.default, dict) else self.default

    def parse_value(self, name: str, text: Value) -> Value:
        """What somebody typed as a value of the option. Raises UsageError."""
        defaults = self.default.values() if isinstance(self.default, dict) else (self.default,)
        if text in defaults:
            return text
        if self.kind == "choice":
            if text in self.choices:
                return text
            raise errors.unknown_name_error(name, str(text), self.choices)
        if self.kind == "count":
            if re.fullmatch(r"[1-9][0-9]{0,5}", str(text)):
                return int(text)
            raise errors.UsageError(f"{name}={text}: a whole number of one or more is needed")
        try:
            return parse_size(str(text))
        except ValueError as error:
            raise errors.UsageError(f"{name}={text}: {error}") from error


class Strategy(_Table):
    """What a way to train on several ranks needs beside them, and what may be chosen about it.

    `variables` are set in every rank and helper; a helper is a process that imports the
    framework, or runs what `serve` says in Python, with its own variables set as well, on the
    driver's host; of those in `counted` there are as many as the option that names them says,
    each with its "{number}". "{ranks}" is the ranks' number, "{host}" and "{port}" an address
    there that is free, "{address}" that of the node where a variable is read, and an option's
    name in braces is its value. Of an `asynchronous` one no rank waits for another.

    For `predict`: where ranks join gradients among themselves they do it by the algorithm
    `exchange`, after the backward pass, or during it in `buckets`: bytes of the first, and of
    the others.
    """

    title: str
    asynchronous: bool = False
    exchange: Literal["ring", "halving"] = "ring"
    buckets: tuple[int, int] | None = None
    serve: str = ""
    variables: dict[str, str] = Field(default_factory=dict)
    helpers: tuple[dict[str, str], ...] = ()
    counted: dict[str, dict[str, str]] = Field(default_factory=dict)
    options: dict[str, Option] = Field(default_factory=dict)

    @property
    def algorithm(self) -> Algorithm:
        """By which gradients are joined: whoever has processes beside the ranks has servers."""
        return "server" if self.helpers or self.counted else self.exchange

    def resolve_options(self, chosen: Mapping[str, Value], device: str) -> dict[str, Value]:
        """Every option's value: what was chosen, else what it is on the device anyway."""
        return {
            name: chosen.get(name, option.default_for(device))
            for name, option in self.options.items()
        }

    def helper_processes(self, options: Mapping[str, Value]) -> list[tuple[int, dict[str, str]]]:
        """Return each helper's number and variables; `options` come from `resolve_options`."""
        counted_helpers = [
            (number, helper_variables)
            for name, helper_variables in self.counted.items()
            for number in range(int(options[name]))
        ]
        return [*enumerate(self.helpers), *counted_helpers]

    def non_default_options(
        self, chosen_options: Mapping[str, Value], device: str
    ) -> dict[str, Value]:
        """Of what was given, that which is otherwise than without it, checked.

        What the strategy has no option for stays, to be refused. Raises UsageError.
        """
        parsed_options = {
            name: self.options[name].parse_value(name, text) if name in self.options else text
            for name, text in chosen_options.items()
        }
        default_values = self.resolve_options({}, device)
        return {
            name: value
            for name, value in parsed_options.items()
            if default_values.get(name) != value
        }
