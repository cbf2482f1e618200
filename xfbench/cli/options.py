"""Options that several commands share, and the functions that parse their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from xfbench.base.errors import UsageError

T = TypeVar("T")

# The default frameworks and workloads: those of the experiment `quick`.
FRAMEWORKS = "caffe,mxnet,tensorflow,torch"
WORKLOADS = "lenet,convnet"

ResultsOption = Annotated[
    Path | None,
    typer.Option(
        help="Results folder (default: $XFBENCH_RESULTS, else ./results).", show_default=False
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
RecordFilterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE",
        help="Use only records that meet this condition, such as framework=torch, threads>=2 or "
        "machine.cpu_model~xeon (repeatable). Operators: =, !=, >=, <=, >, < and ~ (contains).",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what the command would do, without doing it.")
]
TimeLimitOption = Annotated[float, typer.Option(min=1, help="Time limit of one launch in seconds.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Skip launches that are already done.")
]
StrategyOptionsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="Options of the strategy, such as servers=2,bucket_size=1MB: see docs/clusters.md.",
        show_default=False,
    ),
]
PythonsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--python", metavar="NAME=PATH", help="Python interpreter of a framework (repeatable)."
    ),
]


# Changes to the published solver: see `xfbench/model/training.py`.
LarsOption = Annotated[
    str | None,
    typer.Option(
        help="LARS trust coefficients; 0: no LARS (default: no LARS).", show_default=False
    ),
]
LearningRateOption = Annotated[
    str | None,
    typer.Option(help="Base learning rates (default: the workload's).", show_default=False),
]
RateScalingOption = Annotated[
    str | None,
    typer.Option(
        help="LR scaling. linear: in proportion to the batch size; none: no scaling (default: "
        "none).",
        show_default=False,
    ),
]
RateWarmupOption = Annotated[
    str | None,
    typer.Option(
        help="Learning-rate warm-up in epochs (default: no warm-up).",
        show_default=False,
    ),
]


def parse_solver_settings(
    lars: str | None, learning_rate: str | None, rate_scaling: str | None, rate_warmup: str | None
) -> dict[str, Any]:
    """Return the values of the four options, by the name of the setting; None if not given.

    Raises UsageError if a value is invalid. The message names the option.
    """
    return {
        "lars": parse_list(lars, float, "--lars"),
        "learning_rate": parse_list(learning_rate, float, "--learning-rate"),
        "rate_scaling": parse_list(rate_scaling, str, "--rate-scaling"),
        "rate_warmup": parse_list(rate_warmup, parse_non_negative_int, "--rate-warmup"),
    }


def parse_list(text: str | None, convert: Callable[[str], T], option: str) -> list[T] | None:
    """Return the values of a comma-separated list; None if `text` is None.

    - `convert`: converts the text of one value. Raises ValueError if the text is invalid.
    - `option`: name of the option, for the error message.

    Raises UsageError if a value is invalid.
    """
    if text is None:
        return None
    try:
        return [convert(item.strip()) for item in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def parse_strategy_options(text: str | None) -> dict[str, str] | None:
    """Return the values, by name, from text such as `servers=2,bucket_size=1MB`; None stays None.

    Raises UsageError if the text has another form or repeats a name.
    """
    if text is None:
        return None
    value_by_name: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not name or not equals or not value or name in value_by_name:
            raise UsageError(
                f"--strategy-options {text}: expected NAME=VALUE,... such as servers=2, "
                "each name once"
            )
        value_by_name[name] = value
    return value_by_name


def parse_positive_int(text: str) -> int:
    """Parse a whole number of one or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number of one or more")
    return int(text)


def parse_non_negative_int(text: str) -> int:
    """Parse a whole number of zero or more, such as a seed."""
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def parse_fraction(text: str) -> float:
    """Parse a fraction between 0 and 1, given as "2%" or "0.02"."""
    fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 < fraction < 1:
        raise ValueError(f"{text!r} is not between 0 and 100 %")
    return fraction


def parse_byte_size(text: str | None, option: str) -> int | None:
    """Return a size such as "8GB" or "512MiB" in bytes; None stays None.

    Raises UsageError if the size is invalid. The message names `option`.
    """
    from xfbench.model.strategy import parse_size

    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def parse_interpreters(pairs: list[str] | None) -> dict[str, Path]:
    """Return the interpreter of each framework from pairs such as `torch=/usr/bin/python3`.

    Raises UsageError if a pair has another form, a framework is unknown or a file does not exist.
    """
    from xfbench.planning import plan_builder

    interpreters = {}
    for pair in pairs or ():
        name, equals, path = pair.partition("=")
        if not equals or not path:
            raise UsageError(f"--python {pair}: expected NAME=PATH, such as torch=/usr/bin/python3")
        interpreters[name] = plan_builder.resolve_interpreter(name, path)
    return interpreters


def parse_run_command(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Parse arguments of `xfbench run`. Return the value of each parameter, by its name.

    Parameters without an argument have their default. Raises UsageError if an argument is invalid.
    """
    from xfbench import cli

    command = typer.main.get_command(cli.app)
    try:
        context = getattr(command, "commands")["run"].make_context("run", list(arguments))  # noqa: B009
    except cli.ParseError as error:
        raise UsageError(" ".join(str(error).split())) from error
    parameters: Mapping[str, Any] = context.params
    return parameters
