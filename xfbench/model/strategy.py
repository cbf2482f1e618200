"""Strategies: how several ranks train together, with their options and helper processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import starmap
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from xfbench.base import errors
from xfbench.base.quantities import parse_size
from xfbench.model.communication_cost import Algorithm

ASYNCHRONOUS = (
    "asynchronous: no rank waits for another, so the weights differ from run to run and cannot "
    "be verified"
)
Value = int | str


def format_options(options: Iterable[tuple[str, Value]]) -> str:
    """Return options as the user types them, such as "overlap=off servers=2"."""
    return " ".join(f"{name}={value}" for name, value in options)


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Option(_Table):
    """An option of a strategy.

    - `kind`: "count" is a whole number of one or more. "bytes" is a size such as 1MB, 512KiB or
      plain digits. "choice" is one of `choices`.
    - `default`: the default value, or one default per device. A default may also be a word that
      lets the framework choose the value.
    """

    title: str
    kind: Literal["count", "bytes", "choice"] = "choice"
    choices: tuple[str, ...] = ()
    default: Value | dict[str, Value]

    def default_for(self, device: str) -> Value:
        """Return the default on `device`."""
        return self.default[device] if isinstance(self.default, dict) else self.default

    def parse_value(self, name: str, text: Value) -> Value:
        """Parse a value of the option `name` as the user typed it.

        Raises UsageError if the value is invalid.
        """
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
            raise errors.UsageError(f"{name}={text}: give a whole number of one or more")
        try:
            return parse_size(str(text))
        except ValueError as error:
            raise errors.UsageError(f"{name}={text}: {error}") from error


class Helper(NamedTuple):
    """A helper process of a strategy.

    - `number`: number among the helpers of its kind, from 0.
    - `variables`: environment variables.
    - `is_counted`: whether an option sets the number of such helpers.
    """

    number: int
    variables: dict[str, str]
    is_counted: bool = False


class Strategy(_Table):
    """A strategy of a framework: how several ranks train together.

    - `asynchronous`: whether no rank waits for another.
    - `variables`: environment variables of every rank and helper.
    - `helpers`: the additional environment variables of each helper process. These helpers run on
      the driver's host.
    - `counted`: more helpers, by the option that sets their number. For example,
      `{servers: variables}` starts as many helpers as the option `servers` says. `variables` are
      the additional environment variables of these helpers. They run on the nodes in turn, if the
      launcher can choose nodes, else on the driver's host.
    - `serve`: Python code that a helper runs; empty: a helper imports the framework.
    - `exchange`: the all-reduce algorithm, for `xfbench predict`.
    - `buckets`: size in bytes of the first bucket of gradients, and of each other bucket, for
      `xfbench predict`. Buckets are exchanged during the backward pass. None: all gradients are
      exchanged after the backward pass.

    These placeholders in the values of environment variables are replaced:

    - "{number}": the number of the helper.
    - "{ranks}": the number of ranks.
    - "{host}" and "{port}": a free address on the driver's host.
    - "{address}": the address of the node that reads the variable. It is not replaced in `serve`.
    - An option's name in braces: the option's value.
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
        """The algorithm of gradient exchange: "server" if there are helpers, else `exchange`."""
        return "server" if self.helpers or self.counted else self.exchange

    def options_with_defaults(
        self, chosen_options: Mapping[str, Value], device: str
    ) -> dict[str, Value]:
        """Return the value of each option: the chosen value, or else the default on `device`."""
        return {
            name: chosen_options.get(name, option.default_for(device))
            for name, option in self.options.items()
        }

    def helper_processes(self, options: Mapping[str, Value]) -> list[Helper]:
        """Return the helpers that the strategy starts.

        `options` has every option's value, as `options_with_defaults` returns them.
        """
        counted_helpers = [
            Helper(index, helper_variables, is_counted=True)
            for name, helper_variables in self.counted.items()
            for index in range(int(options[name]))
        ]
        return [*starmap(Helper, enumerate(self.helpers)), *counted_helpers]

    def non_default_options(
        self, chosen_options: Mapping[str, Value], device: str
    ) -> dict[str, Value]:
        """Return the chosen options that differ from their defaults, with parsed values.

        Unknown options are kept; `capabilities.py` refuses them. Raises UsageError if a value is
        invalid.
        """
        parsed_options = {
            name: self.options[name].parse_value(name, text) if name in self.options else text
            for name, text in chosen_options.items()
        }
        default_values = self.options_with_defaults({}, device)
        return {
            name: value
            for name, value in parsed_options.items()
            if default_values.get(name) != value
        }
